// Package textlog is a log for tests, which one goroutine reads while others write it.
package textlog

import (
	"bytes"
	"strings"
	"sync"
)

// Log is an io.Writer that keeps what is written. The zero value is empty. It is safe for
// concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count is how often words stand in it.
func (l *Log) Count(words string) int { return strings.Count(l.String(), words) }
