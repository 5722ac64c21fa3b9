// Package mutant says which deliberate fault a program has, of the many that were
// built into it. Nothing of the product imports it: TestMutants builds a copy of
// some source files, in an overlay, that does.
package mutant

import "os"

// Env names the fault.
const Env = "LEASEFS_MUTANT"

var chosen = os.Getenv(Env)

// On reports whether the fault of that name is the chosen one.
func On(name string) bool { return chosen == name }
