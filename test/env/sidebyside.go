package env

import (
	"flag"
	"runtime"
	"strconv"
)

// SideBySide lets three times as many tests run in parallel as there are processors,
// unless -parallel says how many. It is for packages whose tests mostly wait: for
// limits of time, and for processes to start. TestMain calls it before m.Run.
func SideBySide() {
	flag.Parse() // which m.Run would do
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		panic(err) // there is such a flag in each test
	}
}
