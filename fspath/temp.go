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
func TempName(name string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	keep := MaxName - 1 - len(TempInfix) - 2*len(b)
	for len(name) > keep || !utf8.ValidString(name) {
		name = name[:len(name)-1]
	}
	return "." + name + TempInfix + hex.EncodeToString(b[:])
}
