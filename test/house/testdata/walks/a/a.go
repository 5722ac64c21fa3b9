// Package a imports b.
package a

import "github.com/leasefs/leasefs/b"

// T has a method.
type T struct{}

// Above stands above what it calls.
func Above(t T) { t.Below(Above) }

// Below may call what stands above it.
func (T) Below(back func(T)) { b.F(func() { Above(T{}) }) }
