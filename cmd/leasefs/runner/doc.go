// Package runner runs a command for as long as something is held for it, such as a
// lock or a registration, and ends it before that can be another's. It passes signals
// on, and turns how the run ended into an exit code.
package runner
