package namenode_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/namenode"
)

// TestPageOfAStandby: the page of a standby tells that it is one, who is active and where the
// page of that one is; it answers no calls.
func TestPageOfAStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	a := p.active(acfg)
	b := p.start(bcfg)
	ask := func(s *namenode.Server, path, request string, out any) int {
		t.Helper()
		resp, err := http.Post("http://"+s.PagesAddr()+"/page/api/"+path, "application/json", strings.NewReader(`{"user":"root","tab":"AAAAAAAAAAAAAA==","request":`+request+`}`))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s: %v: %s", path, err, text)
		}
		return resp.StatusCode
	}
	type member struct {
		Address, Page string
		Active        bool
		TxID          *uint64
	}
	p.eventually("the standby's page says who is active", func() bool {
		var s struct {
			Role, ActiveAddress string
			Active              string `json:"active_address"`
		}
		return ask(b, "call/Status", `{}`, &s) == http.StatusOK && s.Role == "standby" && s.Active == a.Addr()
	})
	var refused struct {
		Error struct{ Active, Message string }
	}
	if status := ask(b, "call/List", `{"at":{"path":"/"}}`, &refused); status != http.StatusServiceUnavailable || refused.Error.Active != a.Addr() {
		t.Errorf("%d, %+v", status, refused)
	}
	for _, s := range []*namenode.Server{a, b} {
		var fleet struct {
			Members []member
			Problem string
		}
		p.eventually("both are there, and say how far they are", func() bool {
			return ask(s, "fleet", `{}`, &fleet) == http.StatusOK && len(fleet.Members) == 2 && fleet.Members[0].TxID != nil && fleet.Members[1].TxID != nil
		})
		if m := fleet.Members[0]; !m.Active || m.Address != a.Addr() || m.Page != "http://"+a.PagesAddr() || fleet.Members[1].Active || fleet.Problem != "" {
			t.Errorf("%+v", fleet)
		}
	}
	for _, s := range []*namenode.Server{b, a} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
