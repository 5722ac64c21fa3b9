// Package runner runs a command for as long as something is held for it, such as a
// lock or a registration, and ends it before that can be another's. It passes signals
// on, and says how all of it ended as an exit code.
package runner
