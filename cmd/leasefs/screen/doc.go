// Package screen prints what people and scripts see of a run of leasefs: results as text,
// tables or JSON, progress bars, and failures as one line with its next step and exit code.
//
//	printer.go  results, and how names, sizes, times and modes are written
//	bar.go      progress on a terminal
//	errors.go   failures: their line, their JSON, their exit code
//	hints.go    what a failure or a log line advises, by its kind and reason
package screen
