// Command draw puts the results of a run into the page of experiments:
//
//	draw FOLDER PAGE
//
// FOLDER has the results as JSON; pictures are made beside them, and the tables in PAGE
// are replaced.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/leasefs/leasefs/test/experiments/report"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: draw FOLDER PAGE")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1)
	}
}

func draw(dir, page string) error {
	text, err := os.ReadFile(page) //nolint:gosec // as asked for
	if err != nil {
		return err
	}
	images, err := filepath.Rel(filepath.Dir(page), dir)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	shown := string(text)
	for _, file := range files {
		r, err := report.Load(file)
		if err != nil {
			return err
		}
		for _, c := range r.Charts {
			if err := os.WriteFile(filepath.Join(dir, r.Picture(c)), []byte(c.SVG()), 0o640); err != nil {
				return err
			}
		}
		if shown, err = r.Replace(shown, filepath.ToSlash(images)); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(shown), 0o640)
}
