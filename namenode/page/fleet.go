package page

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/leasefs/leasefs/internal/turn"
)

// Member is one namenode of the fleet, as it tells the others.
type Member struct {
	Address  string `json:"address"` // where clients reach it
	Page     string `json:"page"`    // where people do: a URL, or of an older release HOST:PORT
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Version  string `json:"version"`
	Active   bool   `json:"active"` // or about to be
	JoinedMS int64  `json:"joined_unix_ms"`
	// TxID is the last change that it has; null: it does not say.
	TxID  *uint64 `json:"txid"`
	Unfit string  `json:"unfit"` // why another one should be active; empty: it is fit
}

// fleet is asked for once for all who want to see it.
type fleet struct {
	turn    turn.Turn
	members []Member
	err     error
	asked   time.Duration // by the clock's Mono; 0: never
}

const (
	// fleetAge is how old what the fleet has said may be.
	fleetAge = 2 * time.Second
	// fleetWait is how long it has to say it.
	fleetWait = 3 * time.Second
)

func (p *Page) askFleet(ctx context.Context) ([]Member, error) {
	unlock, err := p.fleet.turn.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if now := p.cfg.Clock.Mono(); p.fleet.asked == 0 || now-p.fleet.asked > fleetAge {
		// Of all who want to see it: not ended by the first one's leaving.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleetWait)
		defer cancel()
		p.fleet.members, p.fleet.err = p.cfg.Fleet(ctx)
		p.fleet.asked = p.cfg.Clock.Mono()
	}
	return p.fleet.members, p.fleet.err
}

// tellFleet tells of the namenodes. That they cannot be asked is a part of the answer.
func (p *Page) tellFleet(r *http.Request, a *asked, answer answers) error {
	if err := p.knows(r, a); err != nil {
		return err
	}
	out := struct {
		Members []Member `json:"members"`
		Problem string   `json:"problem"`
	}{Members: []Member{}}
	members, err := p.askFleet(r.Context())
	if err != nil {
		out.Problem = err.Error()
	} else {
		out.Members = append(out.Members, members...)
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return answer(b)
}
