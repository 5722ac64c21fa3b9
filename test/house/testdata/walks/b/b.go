// Package b imports nothing.
package b

// F calls what it was given, such as Above.
func F(Above func()) { Above() }
