// Package argv reads command lines of leasefs as people type them, ahead of the parser
// of flags, which is stricter: it sorts flags and operands, checks values, finds what a
// mistyped word means, and makes the scripts that complete words in a shell. It also reads
// what can take the place of flags: environment variables, and the file of --config.
package argv
