package transfer

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/leasefs/leasefs/internal/fserror"
)

func TestResume(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("0123456789", 60_000) // more than one read
	for _, c := range []struct {
		name, file, input string
		compare           bool
		rest, words       string
	}{
		{"nothing is there", "", whole, true, whole, ""},
		{"a part is there", whole[:300_000], whole, false, whole[300_000:], ""},
		{"a part is there, compared", whole[:300_000], whole, true, whole[300_000:], ""},
		{"all is there", whole, whole, true, "", ""},
		{"the input is shorter", whole, whole[:299_999], false, "", "ends after 299999 bytes, and the file has 600000"},
		{"the input differs", whole[:300_000] + "x", whole, true, "", "differs from the file at byte 300000"},
		{"the input differs, unseen", whole[:300_000] + "x", whole, false, whole[300_001:], ""},
	} {
		for _, src := range []io.Reader{strings.NewReader(c.input), iotest.HalfReader(strings.NewReader(c.input)), iotest.DataErrReader(strings.NewReader(c.input))} {
			var file io.Reader
			if c.compare {
				file = strings.NewReader(c.file)
			}
			got, err := io.ReadAll(Resume(src, int64(len(c.file)), file))
			var e *fserror.Error
			switch {
			case c.words == "" && err != nil, string(got) != c.rest:
				t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
			case c.words != "" && (!errors.As(err, &e) || e.Kind != fserror.NotAtEnd || e.Length != int64(len(c.file)) || !strings.Contains(err.Error(), c.words)):
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(Resume(iotest.ErrReader(broken), 5, nil)); !errors.Is(err, broken) {
		t.Errorf("a source that breaks: %v", err)
	}
}
