package screen

import (
	"context"
	"errors"
	"log/slog"
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
	fserror.CompareFailed:   "look at what has changed, then decide whether to try again",
	fserror.ReadOnly:        "leasefs cp copies what is in a snapshot to where it can be changed",
}

// reasonHints say, in the words of the command line, what can be done about a reason. They
// end the line, in the log too.
var reasonHints = map[string]string{
	fserror.ReasonNoNamenode:     "leasefs namenode starts one; --namenode or LEASEFS_NAMENODE names them",
	fserror.ReasonNoAnswer:       "leasefs status shows which do",
	fserror.ReasonSafeMode:       "leasefs admin safemode off does",
	fserror.ReasonNotSuperuser:   "--user says who asks",
	fserror.ReasonLevel:          "leasefs admin upgrade finish raises it, when all namenodes have the new release",
	fserror.ReasonUpgrade:        "leasefs admin upgrade status shows all",
	fserror.ReasonNewer:          "docs/UPGRADES.md tells how releases follow each other",
	fserror.ReasonOlder:          "docs/UPGRADES.md says how to upgrade it",
	fserror.ReasonNoHistory:      "an operator starts the namenode with --lease-history to keep one",
	fserror.ReasonNoLease:        "leasefs lease ls lists those that live",
	fserror.ReasonNoSnapshots:    "leasefs snapshot allow does, for a superuser",
	fserror.ReasonHasSnapshots:   "leasefs snapshot rm deletes one",
	fserror.ReasonInWay:          "leasefs snapshot restore --delete removes it, with all that was made since",
	fserror.ReasonQuotaNames:     "delete files there, or have a superuser raise it with leasefs quota set",
	fserror.ReasonQuotaBytes:     "delete files there, or have a superuser raise it with leasefs quota set",
	fserror.ReasonTrust:          "--insecure-trust-clients does",
	fserror.ReasonAlone:          "--zookeeper, --namespace and --blocks make a namenode one of several",
	fserror.ReasonNoNamespace:    "check --zookeeper and --namespace, or see leasefs admin format and leasefs admin restore",
	fserror.ReasonNamespaceTaken: "--namespace gives the name",
	fserror.ReasonStoreTaken:     "leasefs admin restore restores it; --blocks and --namespace name another",
	fserror.ReasonOtherStore:     "--blocks names another, --take-over INCARNATION takes it over",
	fserror.ReasonStoreConflict:  "leasefs admin resolve gives it the store",
	fserror.ReasonUnsweptBlocks:  "leasefs admin gc deletes them",
	fserror.ReasonDamagedBlock:   "leasefs admin fsck --blocks names its files",
	fserror.ReasonDamagedRecord:  "leasefs admin journal verify does",
	fserror.ReasonOneImage:       "leasefs admin checkpoint makes one",
	fserror.ReasonArchive:        "see leasefs admin restore --help",
	fserror.ReasonRestore:        "see leasefs admin restore --help",
	fserror.ReasonNoBackup:       "leasefs admin backup makes one",
	fserror.ReasonTreeOnly:       "--tree-only says that it was made without them",
	fserror.ReasonRoomForBackup:  "leasefs status tells how many",
	fserror.ReasonTree:           "leasefs get -r and put -r copy trees",
	fserror.ReasonTreeNotAsked:   "-r copies it with all that is in it",
	fserror.ReasonSpecialFile:    "--skip-special leaves such files out",
	fserror.ReasonAttributeLost:  "without -X the copy has none",
	fserror.ReasonData:           "--data names it",
	fserror.ReasonBlocks:         "--blocks names it",
	fserror.ReasonBlockCache:     "--block-cache names it, --block-cache-size limits it",
	fserror.ReasonListen:         "--listen gives it",
	fserror.ReasonHTTP:           "--http gives it",
	fserror.ReasonPages:          "--pages gives it",
	fserror.ReasonTLS:            "--tls-cert names it",
	fserror.ReasonAudit:          "--audit names it",
	fserror.ReasonShares:         "--shares names it",
	fserror.ReasonProxy:          "the namenode's --proxies names the file of rules; docs/SECURITY.md explains them",
	fserror.ReasonProof:          "leasefs login gets a token, --token-file shows one, --tls-cert and --tls-key a certificate, --kerberos a ticket; --user says who asks",
	fserror.ReasonLogin:          "leasefs login begins another",
	fserror.ReasonIdentity:       "--tls-client-ca, --tokens, --oidc-issuer and --kerberos-keytab ask for a proof, --insecure-trust-clients for none; docs/SECURITY.md has all",
	fserror.ReasonDelegation:     "--delegation-tokens has a namenode give them to who proves who he is",
	fserror.ReasonSoftLimit:      "--soft-limit sets it",
	fserror.ReasonMinLeaseTTL:    "--min-lease-ttl sets it",
	fserror.ReasonNamespaceID:    "--id says it",
	fserror.ReasonZooKeeper:      "see --zookeeper and --zookeeper-tls",
	fserror.ReasonZooKeeperUser:  "--zookeeper-auth USER:PASSWORD or LEASEFS_ZOOKEEPER_AUTH gives both, --namespace the name",
	fserror.ReasonNamespaceName:  "--namespace gives it",
	fserror.ReasonSessionTimeout: "--session-timeout sets it",
}

// WithReason is an error's text with the hint of its reason, if there is one.
func WithReason(err error) string {
	text := err.Error()
	if hint := reasonHints[fserror.ReasonOf(err)]; hint != "" {
		text += "; " + hint
	}
	return text
}

// WithHints adds a hint to the log lines that have a reason, or an error with one.
func WithHints(h slog.Handler) slog.Handler { return hintingHandler{h} }

// hintingHandler is withHints.
type hintingHandler struct{ slog.Handler }

func (h hintingHandler) Handle(ctx context.Context, r slog.Record) error {
	var hint string
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			hint = reasonHints[fserror.ReasonOf(err)]
		} else if a.Key == "reason" {
			hint = reasonHints[a.Value.String()]
		}
		return hint == ""
	})
	if hint != "" {
		r.AddAttrs(slog.String("hint", hint))
	}
	return h.Handler.Handle(ctx, r)
}

func (h hintingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return hintingHandler{h.Handler.WithAttrs(attrs)}
}

func (h hintingHandler) WithGroup(name string) slog.Handler {
	return hintingHandler{h.Handler.WithGroup(name)}
}

// noDescriptors is the next step after EMFILE, whatever failed with it.
const noDescriptors = "raise the limit of open files, which ulimit -n shows, or have fewer open"

// Advised says whether a failure's text or reason already says what to do.
func Advised(f *fserror.Error) bool {
	return nextStep.MatchString(f.Message) || reasonHints[f.Reason] != ""
}

// nextStep finds in a message what its reader should do.
var nextStep = regexp.MustCompile(`; |leasefs [a-z-]|\(try again|\(its keys are|--[a-z]|: (use|choose|set|stop|delete|remove|mount|write|name|correct|make|get|is it|they need) `)

// ErrorText is an error's line, the next step included, without the program's name.
func ErrorText(err error) string {
	text := WithReason(err)
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
