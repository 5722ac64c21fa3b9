package fspath

import (
	"crypto/rand"
	"encoding/hex"
	"unicode/utf8"
)

// TempInfix is part of each name that TempName makes.
const TempInfix = ".leasefs-"

// TempName is a name to go beside name, that nobody else has, of at most 255
// bytes: ".NAME.leasefs-RANDOM".
func TempName(name string) string { return TempNameOf(name, "") }

// TempNameOf is TempName with mark at the end, by which its maker knows it.
func TempNameOf(name, mark string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	keep := MaxName - 1 - len(TempInfix) - 2*len(b) - len(mark)
	for len(name) > keep || !utf8.ValidString(name) {
		name = name[:len(name)-1]
	}
	return "." + name + TempInfix + hex.EncodeToString(b[:]) + mark
}
