// Package proof is what proves who somebody is, as both sides keep it in files:
// certificates with their keys, authorities, and bearer tokens. What a file says is read
// again when it changes; while a new content is not usable, what the file said before
// counts, and the error is told once.
//
// No error and no String of this package has a secret in it.
package proof
