package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// made is what a worker reports: when it began and ended, and how long each
// file took.
type made struct {
	Began time.Time       `json:"began"`
	Ended time.Time       `json:"ended"`
	Took  []time.Duration `json:"took"`
}

// toMake is what a worker is told to make.
type toMake struct {
	Dir   string `json:"dir"`
	Files int    `json:"files"`
}

// FolderWorker is one process of the workloads files1 and files16. It reads what
// to make, prints "ready", waits for a line, makes the files, and reports.
func FolderWorker(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	var job toMake
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &job)
	}
	if err != nil {
		return fserror.Wrap(fserror.InvalidArgument, "bench", "", err)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	if _, err := lines.ReadString('\n'); err != nil {
		return err // the parent has gone
	}
	data := pattern(1 << 10)
	r := made{Began: time.Now(), Took: make([]time.Duration, 0, job.Files)}
	for i := range job.Files {
		t := time.Now()
		if err := writeNew(filepath.Join(job.Dir, "f"+strconv.Itoa(i)), data); err != nil {
			return err
		}
		r.Took = append(r.Took, time.Since(t))
	}
	r.Ended = time.Now()
	return json.NewEncoder(out).Encode(r)
}

// writeNew makes a file as shells and os.Create do.
func writeNew(name string, data []byte) error {
	w, err := os.Create(name) //nolint:gosec // in the folder that the caller named
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return errors.Join(err, w.Close())
}

// worker is a process under way.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (f *folder) startWorker(ctx context.Context, job toMake) (*worker, error) {
	w := &worker{cmd: exec.CommandContext(ctx, f.cfg.Worker[0], f.cfg.Worker[1:]...)} //nolint:gosec // this program itself
	w.cmd.Stderr = os.Stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	return w, json.NewEncoder(w.in).Encode(job)
}

// files has so many processes make files of 1 KiB, each in one folder of its own.
func (f *folder) files(ctx context.Context, processes int) (row Row, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var list []*worker
	defer func() {
		if err != nil {
			cancel() // ends those that it left
		}
		for _, w := range list {
			werr := w.cmd.Wait()
			if err == nil {
				err = werr
			}
		}
		cancel()
	}()
	for i := range processes {
		dir := filepath.Join(f.dir, fmt.Sprintf("files%d-%d", processes, i))
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // a usual mode
			return Row{}, err
		}
		w, err := f.startWorker(ctx, toMake{dir, max(1, f.cfg.N/processes)})
		if w != nil {
			list = append(list, w)
		}
		if err != nil {
			return Row{}, err
		}
	}
	for _, w := range list {
		if line, err := w.out.ReadString('\n'); err != nil {
			return Row{}, fmt.Errorf("a process began with %q: %w", line, err)
		}
	}
	for _, w := range list {
		if _, err := io.WriteString(w.in, "go\n"); err != nil {
			return Row{}, err
		}
	}
	var all made
	for _, w := range list {
		var one made
		if err := json.NewDecoder(w.out).Decode(&one); err != nil {
			return Row{}, err
		}
		if all.Took == nil || one.Began.Before(all.Began) {
			all.Began = one.Began
		}
		if one.Ended.After(all.Ended) {
			all.Ended = one.Ended
		}
		all.Took = append(all.Took, one.Took...)
	}
	row = summarize(all.Took, all.Ended.Sub(all.Began))
	row.Bytes = row.Ops << 10
	row.Note = fmt.Sprintf("1 KiB: create, write, close by %d processes", processes)
	return row, nil
}
