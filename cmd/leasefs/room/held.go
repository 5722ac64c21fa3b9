package room

import (
	"fmt"
	"strconv"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

// Held is what somebody holds of what all share, under --json.
type Held struct {
	What    string `json:"what"`
	Who     string `json:"who"`
	Held    int64  `json:"held"`
	Most    *int64 `json:"most"` // null: there is no limit of his own
	Refused uint64 `json:"refused"`
	Delayed uint64 `json:"delayed"`
}

// HeldOf is that of several.
func HeldOf(all []client.Holding) []Held {
	out := []Held{}
	for _, h := range all {
		out = append(out, Held{h.What, h.Who, h.Held, screen.OrNull(h.Most), h.Refused, h.Delayed})
	}
	return out
}

const heldHeading = "HELD\tMOST\tREFUSED\tDELAYED\n"

func heldRow(h client.Holding) string {
	most := "-"
	if h.Most > 0 {
		most = strconv.FormatInt(h.Most, 10)
	}
	return fmt.Sprintf("%d\t%s\t%d\t%d\n", h.Held, most, h.Refused, h.Delayed)
}

// OwnTable tells a person what he holds himself, if it is anything or has a limit.
func OwnTable(p *screen.Printer, all []client.Holding) error {
	if len(all) == 0 {
		return nil
	}
	w := p.Table()
	fmt.Fprint(w, "\nOF\t"+heldHeading)
	for _, h := range all {
		fmt.Fprint(w, h.What+"\t"+heldRow(h))
	}
	return w.Flush()
}

// greedyTable tells superusers who is greedy, if anybody is.
func greedyTable(p *screen.Printer, list []client.NamenodeStatus) error {
	w, some := p.Table(), false
	for i := range list {
		for _, h := range list[i].Greedy {
			if !some {
				fmt.Fprint(w, "\nGREEDY\tOF\tAT\t"+heldHeading)
				some = true
			}
			fmt.Fprint(w, h.Who+"\t"+h.What+"\t"+list[i].Address+"\t"+heldRow(h))
		}
	}
	return w.Flush()
}
