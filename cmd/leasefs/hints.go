package main

import (
	"errors"
	"regexp"
	"strings"
	"syscall"

	"github.com/leasefs/leasefs/internal/fserror"
)

// hints are the next steps that end an error line whose message names none.
var hints = [fserror.Kinds]string{
	fserror.Internal:        "if it happens again, the namenode's log tells more",
	fserror.InvalidPath:     "paths are absolute, such as /logs/a",
	fserror.NameTooLong:     "choose a shorter name",
	fserror.InvalidArgument: "see leasefs --help",
	fserror.NotFound:        "check the name; it may have been moved or deleted",
	fserror.Exists:          "choose another name, or remove that one first",
	fserror.IsDirectory:     "name a file in it",
	fserror.NotDirectory:    "check the path: a directory is needed there",
	fserror.NotEmpty:        "leasefs rm -r removes it with all that is in it",
	fserror.Permission:      "its owner or the superuser may, or can allow it with leasefs chmod",
	fserror.Held:            "leasefs lease show tells who has it; try again when it is closed",
	fserror.LeaseLost:       "what was flushed is kept; open it again to continue",
	fserror.LeaseLostGone:   "it was deleted or replaced; create it again to continue",
	fserror.NotAtEnd:        "leasefs stat shows its length",
	fserror.Retry:           "try again in a moment",
	fserror.NoSpace:         "delete files or add disk, then try again",
	fserror.NotActive:       "leasefs status shows which namenode is active; name it with --namenode",
	fserror.Unavailable:     "leasefs status shows which namenodes answer; name one with --namenode",
	fserror.Damaged:         "leasefs admin fsck --blocks checks everything; what is lost is in a backup",
	fserror.Canceled:        "run it again",
	fserror.Deadline:        "give it longer with --timeout",
	fserror.TooLarge:        "do it in smaller pieces",
	fserror.Loop:            "leasefs ls -l shows where links lead",
	fserror.Unsupported:     "docs/CLI.md says what can be done instead",
	fserror.Closed:          "open it again",
	fserror.Unknown:         "look whether it was done before you try again",
	fserror.TooOld:          "list again with leasefs ls --txid, and watch from that id + 1",
	fserror.Truncated:       "read it again from the beginning",
}

// noDescriptors is the next step after EMFILE, whatever failed with it.
const noDescriptors = "raise the limit of open files, which ulimit -n shows, or have fewer open"

// nextStep finds in a message what its reader should do.
var nextStep = regexp.MustCompile(`; |leasefs [a-z-]|\(try again|\(its keys are|--[a-z]|: (use|set|stop|delete|remove|mount|write|name|correct|make|get|is it|they need) `)

// errorText is an error's line, the next step included, without the program's name.
func errorText(err error) string {
	text := err.Error()
	var e *fserror.Error
	held := errors.As(err, &e) && e.Kind == fserror.Held && e.Holder != nil
	if held && e.Message == "" { // else it is no file that could be recovered
		return text + " (leasefs lease recover --force " + e.Path + " takes it now)"
	}
	if held || e != nil && e.RetryAfter > 0 || nextStep.MatchString(text) {
		return text
	}
	if strings.Contains(text, syscall.EMFILE.Error()) { // gRPC leaves only the words of it
		return text + " (" + noDescriptors + ")"
	}
	return text + " (" + hints[kindOf(err)] + ")"
}
