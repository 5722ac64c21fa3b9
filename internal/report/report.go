// Package report is what namenodes say of themselves, and how they are asked for it.
package report

import (
	"context"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// NamenodeStatus is what one namenode of the list says of itself.
type NamenodeStatus struct {
	Address string // as in the list
	Err     error  // it did not answer; all below is zero

	Listen      string // the address it says it has
	Role        string // "active", "standby", "starting", "isolated"
	Active      string // of a standby: the address of the active one, if it knows
	Uptime      time.Duration
	NamespaceID string
	Version     string
	HeapBytes   int64
	JournalStatus
	NamespaceStatus
	Troubles
	RoomStatus
	ZooKeeperStatus
}

// JournalStatus is how far a namenode's journal and image are.
type JournalStatus struct {
	Term         uint64
	TxID         uint64
	Level        uint64 // the feature level of the namespace; 0: its release says nothing of levels
	NewestLevel  uint64 // that the namenode knows
	DurableTxID  uint64
	ImageTxID    uint64
	JournalBytes int64 // since the last image
}

// NamespaceStatus is how many there are of what the namespace holds.
type NamespaceStatus struct {
	Inodes        uint64
	Files         uint64
	Directories   uint64
	Blocks        uint64
	GarbageBlocks uint64
	Leases        uint64 // of writers; 0 of a standby
	GrantedLeases uint64
	Sessions      uint64
	OpenFiles     uint64
}

// Troubles are what somebody should look at.
type Troubles struct {
	OldestOverdue time.Duration // how long the lease longest past its hard limit, or its time to live, has waited
	SafeMode      bool
	SafeModeWhy   string
	// Trusts says whose word it takes for who they are: "machine" is that of programs on
	// its own machine, "everybody" that of whoever reaches it; empty: clients prove it.
	Trusts        string
	StoreConflict string // why nothing is deleted from the block store; empty: there is no conflict
	Short         string // why it refuses what needs room, or would if it were active, or has none for an image; empty: there is room
	DiskError     string // why it is not known whether one of several has room, or that the journal's disk hangs; empty: neither
	// AuditLost is how many lines its audit log has lost, AuditProblem why it cannot be
	// written now; empty: it can, or it keeps none.
	AuditLost    uint64
	AuditProblem string
	// DamagedBlocks is how many blocks of files its scrub has found damaged or gone,
	// Scrubbed when that last ended a pass over all blocks, zero: never; ScrubLate is by how much
	// it takes longer than its period. All are zero of one that does not scrub: only the active
	// one does.
	DamagedBlocks uint64
	Scrubbed      time.Time
	ScrubLate     time.Duration
	Archive       *ArchiveStatus // nil: it archives nothing, or is not active
	// Greedy is told to superusers: who holds most of what all callers share, and who was
	// refused more, or delayed.
	Greedy []Holding
}

// ArchiveStatus is how far the archive of a namenode's journal is.
type ArchiveStatus struct {
	TxID    uint64        // all changes up to this one are archived; 0: not known yet
	Records uint64        // that are durable, and not archived
	Lag     time.Duration // what was durable that long ago is archived
	Holes   uint64        // since it became active: times that changes were purged before they were archived
	Problem string        // why nothing can be archived now; empty: it can
}

// lateArchive is from where on an archive is late: it is two seconds behind, else.
const lateArchive = time.Minute

// Late reports whether changes are not archived that should be; false of a nil one.
func (a *ArchiveStatus) Late() bool { return a != nil && (a.Problem != "" || a.Lag > lateArchive) }

// Holding is what somebody holds of what all callers of a namenode share.
type Holding struct {
	What string // connections, sessions, watches, …, or calls: those of a second
	Who  string // user NAME, or address ADDRESS
	Held int64
	Most int64 // what he may hold; 0: there is no limit of his own
	// Refused is how often he was refused more, Delayed how many calls had to wait.
	Refused, Delayed uint64
}

// Holdings are what the namenode says that somebody holds.
func Holdings(told []*pb.Holding) (all []Holding) {
	for _, h := range told {
		all = append(all, Holding{What: h.GetWhat(), Who: h.GetWho(), Held: h.GetHeld(), Most: h.GetMost(), Refused: h.GetRefused(), Delayed: h.GetDelayed()})
	}
	return all
}

// RoomStatus is what is stored, and how much of the disk is free.
type RoomStatus struct {
	TailBytes    int64
	StoredBytes  int64 // of blocks in files
	GarbageBytes int64 // of blocks that wait to be deleted
	TrashBytes   int64 // of files in the trash, which the others count, too
	// Snapshots is how many there are, SnapshotBytes what the blocks have that only they have,
	// SnapshotMemory about how much memory they take.
	Snapshots      uint64
	SnapshotBytes  int64
	SnapshotMemory int64
	DiskFree       int64
	DiskTotal      int64
	Rooms          []Room  // what there is only so much of; what is used up first comes first
	Quotas         []Quota // told to superusers: the fullest, at most ten, that have 90 % or more of a limit in use
}

// Room is how much of something is in use that there is only so much of.
type Room struct {
	Resource    string // memory, disk, zookeeper, …
	Used, Limit int64
	Full        *time.Duration // when it is used up, at its recent rate; nil: it does not grow, or is less than half full
	Refused     string         // what is refused when it is used up
}

// Quota is how much of a directory's quota is in use.
type Quota struct {
	Path                 string
	Names, Bytes         int64 // limits; -1: none
	UsedNames, UsedBytes int64
	SnapshotBytes        int64 // that only snapshots in it have; they do not count
}

// ZooKeeperStatus is what one namenode of several uses of ZooKeeper, and how it
// stands with the clocks of others.
type ZooKeeperStatus struct {
	// What the journal takes of each ZooKeeper server's memory, and in how many
	// nodes; 0 of a namenode alone.
	ZooKeeperBytes, ZooKeeperNodes int64
	// How far the time of day of its machine is ahead of that of ZooKeeper's leader,
	// and of an S3 block store's; nil where there is none, or it did not answer.
	ZooKeeperClock, StoreClock *clock.Skew
}

// OfAll asks the configured namenodes, and those that they say are active as soon
// as they say so, so that all of it takes no longer than limit. The latter count only
// if none of the former is active. While one takes over from another they may be two.
func OfAll(ctx context.Context, nn *namecall.Namenodes, caller *pb.Caller, limit time.Duration) ([]NamenodeStatus, error) {
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		of     int
		status NamenodeStatus
	}
	answers := make(chan answer)
	asked := nn.Configured()
	n := len(asked)
	out := make([]NamenodeStatus, 0, n+1)
	ask := func(ep *namecall.Node) {
		of := len(out)
		out = append(out, NamenodeStatus{Address: ep.Address})
		go func() { answers <- answer{of, Of(asking, ep, caller)} }()
	}
	for _, ep := range asked {
		ask(ep)
	}
	active := false
	listed, besides := n, 0
	for listed > 0 || besides > 0 && !active {
		a := <-answers
		out[a.of] = a.status
		if a.of >= n {
			besides--
			continue
		}
		listed--
		active = active || a.status.Err == nil && a.status.Role == "active"
		if a.status.Active == "" {
			continue
		}
		if ep := nn.At(a.status.Active); ep != nil && !slices.Contains(asked, ep) {
			asked = append(asked, ep)
			ask(ep)
			besides++
		}
	}
	for cancel(); besides > 0; besides-- { // none of them outlives this
		<-answers
	}
	if active {
		out = out[:n]
	}
	if ctx.Err() != nil {
		return out, fserror.Ended(ctx, "status", "")
	}
	return out, nil
}

// Of asks one namenode.
func Of(ctx context.Context, ep *namecall.Node, caller *pb.Caller) NamenodeStatus {
	out := NamenodeStatus{Address: ep.Address}
	r, err := ep.Status(ctx, caller)
	if err != nil {
		e, _ := namecall.Answer(err)
		out.Err = fserror.With(e, "status", ep.Address)
		return out
	}
	out.Listen, out.Role, out.Version, out.NamespaceID = r.GetAddress(), r.GetRole(), r.GetVersion(), r.GetNamespaceId()
	out.Active = r.GetActiveAddress()
	out.Term, out.TxID, out.DurableTxID, out.ImageTxID = r.GetTerm(), r.GetTxid(), r.GetDurableTxid(), r.GetImageTxid()
	out.Inodes, out.Files, out.Directories = r.GetInodes(), r.GetFiles(), r.GetDirectories()
	out.Blocks, out.GarbageBlocks, out.GarbageBytes = r.GetBlocks(), r.GetGarbageBlocks(), r.GetGarbageBytes()
	out.TrashBytes, out.Snapshots, out.SnapshotBytes, out.SnapshotMemory = r.GetTrashBytes(), r.GetSnapshots(), r.GetSnapshotBytes(), r.GetSnapshotMemoryBytes()
	out.Leases, out.GrantedLeases, out.Sessions, out.OpenFiles = r.GetLeases(), r.GetGrantedLeases(), r.GetSessions(), r.GetOpenFiles()
	out.Level, out.NewestLevel = r.GetFeatureLevel(), r.GetNewestLevel()
	out.Uptime, out.OldestOverdue = ms(r.GetUptimeMs()), ms(r.GetOldestOverdueMs())
	out.Trusts = r.GetTrusts()
	out.DamagedBlocks, out.ScrubLate = r.GetScrub().GetDamaged(), ms(r.GetScrub().GetLateMs())
	if ms := r.GetScrub().GetWholeUnixMs(); ms != 0 {
		out.Scrubbed = time.UnixMilli(ms)
	}
	if a := r.GetArchive(); a != nil {
		out.Archive = &ArchiveStatus{a.GetTxid(), a.GetRecords(), ms(a.GetLagMs()), a.GetHoles(), a.GetProblem()}
	}
	out.AuditLost, out.AuditProblem = r.GetAudit().GetLost(), r.GetAudit().GetProblem()
	out.Greedy = Holdings(r.GetGreedy())
	for _, room := range r.GetRooms() {
		out.Rooms = append(out.Rooms, Room{room.GetResource(), room.GetUsed(), room.GetLimit(), full(room), room.GetRefused()})
	}
	for _, q := range r.GetQuotas() {
		out.Quotas = append(out.Quotas, Quota{q.GetPath(), q.GetNames(), q.GetBytes(), q.GetUsedNames(), q.GetUsedBytes(), q.GetSnapshotBytes()})
	}
	out.SafeMode, out.SafeModeWhy, out.StoreConflict = r.GetSafeMode(), r.GetSafeModeWhy(), r.GetStoreConflict()
	out.Short, out.DiskError = r.GetShort(), r.GetDiskError()
	out.TailBytes, out.StoredBytes, out.JournalBytes = r.GetTailBytes(), r.GetStoredBytes(), r.GetJournalBytes()
	out.ZooKeeperBytes, out.ZooKeeperNodes = r.GetZookeeperBytes(), r.GetZookeeperNodes()
	for _, c := range r.GetClocks() {
		skew := &clock.Skew{Ahead: ms(c.GetAheadMs()), Bound: ms(c.GetBoundMs())}
		switch c.GetThan() {
		case "zookeeper":
			out.ZooKeeperClock = skew
		case "store":
			out.StoreClock = skew
		}
	}
	out.DiskFree, out.DiskTotal, out.HeapBytes = r.GetDiskFree(), r.GetDiskTotal(), r.GetHeapBytes()
	return out
}

// full is when a room is full; nil: that is not known.
func full(r *pb.Room) *time.Duration {
	if r.FullMs == nil {
		return nil
	}
	in := ms(r.GetFullMs())
	return &in
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
