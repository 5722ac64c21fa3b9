package issuer

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// pause is between two times that an issuer is asked, whoever wants to know.
	pause = 10 * time.Second
	// every is how old keys may become before the issuer is asked again: it may have
	// withdrawn one.
	every = 5 * time.Minute
	// patience is for one time.
	patience = 10 * time.Second
	// maxKeys is how many an issuer may have, maxWaiting how many calls may wait for it.
	maxKeys    = 32
	maxWaiting = 64
	// leastRSA is how many bits a key of RSA must have.
	leastRSA = 2048
)

// keys are those of one issuer.
type keys struct {
	url     string
	client  *http.Client
	clock   clock.Clock
	changes *atomic.Uint64
	wake    chan struct{} // run: somebody needs a key that is not known
	waiting atomic.Int32

	mu          sync.Mutex
	set         *set          // nil: none is known yet
	begun, done uint64        // how often the issuer was asked, and which of these was the last that ended; 0: none
	ended       time.Duration // when that was
	err         error         // what came of it
	next        chan struct{} // closed when it was asked the next time
}

// set is what an issuer has said.
type set struct {
	keys   []jose.JSONWebKey
	prints map[thumbprint]bool
}

// run asks the issuer, until the context ends.
func (k *keys) run(ctx context.Context, log *slog.Logger) {
	again := time.NewTimer(every)
	defer again.Stop()
	var told string
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-again.C:
			k.mu.Lock()
			unused := k.set == nil
			k.mu.Unlock()
			if unused { // nobody has shown a token of this issuer yet
				again.Reset(every)
				continue
			}
		}
		k.mu.Lock()
		k.begun++
		k.mu.Unlock()
		s, err := k.fetch(ctx)
		changed := k.note(s, err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != told:
			told = err.Error()
			log.Error("the issuer of tokens cannot be asked for its keys; those that are known count", "cause", err)
		case err == nil && (changed || told != ""):
			told = ""
			log.Info("the issuer of tokens has told its keys", "keys", len(s.keys))
		}
		rest := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
		again.Reset(every)
	}
}

// note keeps what came of asking.
func (k *keys) note(s *set, err error) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		changed = k.set == nil || !maps.Equal(k.set.prints, s.prints)
		k.set = s
		if changed {
			k.changes.Add(1)
		}
	}
	k.done, k.ended, k.err = k.begun, k.clock.Mono(), err
	close(k.next)
	k.next = make(chan struct{})
	return changed
}

// fetch asks the issuer where its keys are, and for them.
func (k *keys) fetch(ctx context.Context) (*set, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, k.client), patience)
	defer cancel()
	p, err := oidc.NewProvider(ctx, k.url)
	if err != nil {
		return nil, fmt.Errorf("%s", clip(strings.TrimPrefix(err.Error(), "oidc: ")))
	}
	var where struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&where); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.Keys, nil)
	if err != nil {
		return nil, fmt.Errorf("its address of keys: %w", err)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	body, err := io.ReadAll(resp.Body)       // which is limited
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", where.Keys, resp.Status)
	}
	return parseSet(body)
}

// parseSet reads a set of keys (RFC 7517). Those that no token may be signed with are left out.
func parseSet(body []byte) (*set, error) {
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("its keys cannot be read: %w", err)
	}
	s := &set{prints: map[thumbprint]bool{}}
	for _, raw := range all.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil || !usable(&key) {
			continue
		}
		sum, err := key.Thumbprint(crypto.SHA256)
		if err != nil {
			continue
		}
		if len(s.keys) == maxKeys {
			return nil, fmt.Errorf("it has over %d keys", maxKeys)
		}
		s.keys = append(s.keys, key)
		s.prints[thumbprint(sum)] = true
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("none of its %d keys is a public key by which tokens can be signed", len(all.Keys))
	}
	return s, nil
}

func usable(key *jose.JSONWebKey) bool {
	if !key.IsPublic() || !key.Valid() || key.Use != "" && key.Use != "sig" {
		return false
	}
	rsa, ok := key.Key.(interface{ Size() int })
	return !ok || rsa.Size() >= leastRSA/8
}

// verify returns the payload of a token that one of the keys has signed. named: there is a
// key with the name that the token has.
func (s *set) verify(jws *jose.JSONWebSignature) (payload []byte, key thumbprint, named, ok bool) {
	if s == nil {
		return nil, key, false, false
	}
	header := jws.Signatures[0].Header
	for i := range s.keys {
		k := &s.keys[i]
		if header.KeyID != "" && k.KeyID != header.KeyID || k.Algorithm != "" && k.Algorithm != header.Algorithm {
			continue
		}
		named = true
		payload, err := jws.Verify(k.Key)
		if err != nil {
			continue
		}
		sum, err := k.Thumbprint(crypto.SHA256)
		if err == nil {
			return payload, thumbprint(sum), true, true
		}
	}
	return nil, key, named, false
}

// has reports whether the issuer still has a key.
func (k *keys) has(key thumbprint) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set != nil && k.set.prints[key]
}

// verify returns the payload of a token with a good signature. If no key that is known has
// signed it, it waits until the issuer was asked, unless that was done just now.
func (k *keys) verify(ctx context.Context, jws *jose.JSONWebSignature) ([]byte, thumbprint, error) {
	k.mu.Lock()
	came := k.begun
	k.mu.Unlock()
	for {
		k.mu.Lock()
		s, next, done, ended, failed := k.set, k.next, k.done, k.ended, k.err
		k.mu.Unlock()
		payload, key, named, ok := s.verify(jws)
		rest := pause - (k.clock.Mono() - ended)
		switch {
		case ok:
			return payload, key, nil
		case done > 0 && failed == nil && (done > came || named && rest > 0):
			return nil, key, refuse("the token is signed by no key of its issuer %s; get a new one", k.url)
		case done > 0 && failed != nil && (done > came || rest > 0):
			return nil, key, k.later(rest, "its issuer %s cannot be asked for its keys (%v)", k.url, failed)
		case done > 0 && rest > 0:
			return nil, key, k.later(rest, "its issuer %s told its keys just now, and the token's is not among them", k.url)
		}
		if err := k.wait(ctx, next); err != nil {
			return nil, key, err
		}
	}
}

// wait waits until the issuer was asked.
func (k *keys) wait(ctx context.Context, next <-chan struct{}) error {
	if k.waiting.Add(1) > maxWaiting {
		k.waiting.Add(-1)
		return k.later(time.Second, "too many wait for what its issuer %s answers", k.url)
	}
	defer k.waiting.Add(-1)
	select { // also if it is being asked: it may have answered before the key was there
	case k.wake <- struct{}{}:
	default:
	}
	select {
	case <-next:
		return nil
	case <-ctx.Done():
		return fserror.Ended(ctx, "", "")
	}
}

func (k *keys) later(after time.Duration, format string, args ...any) error {
	return &fserror.Error{
		Kind: fserror.Retry, Reason: fserror.ReasonProof, RetryAfter: min(max(after, 100*time.Millisecond), pause),
		Message: "the token cannot be verified now: " + fmt.Sprintf(format, args...) + "; trying again may help",
	}
}
