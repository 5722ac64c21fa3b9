package client

import (
	"context"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Granted leases of the fake live until they are revoked.

func (f *fake) GrantLease(_ context.Context, r *pb.GrantLeaseRequest) (*pb.GrantLeaseResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	f.leases[f.seq] = true
	return &pb.GrantLeaseResponse{Id: f.seq, TtlMs: r.TtlMs}, nil
}

func (f *fake) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.leases[r.Id] {
		return nil, fserror.New(fserror.NotFound, "", "", "no such lease")
	}
	return &pb.LeaseTimeToLiveResponse{Id: r.Id, TtlMs: 60_000, RemainingMs: 60_000}, nil
}

func (f *fake) KeepAlive(s grpc.BidiStreamingServer[pb.KeepAliveRequest, pb.KeepAliveResponse]) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return nil
		}
		f.mu.Lock()
		if f.silent {
			f.mu.Unlock()
			continue
		}
		resp := new(pb.KeepAliveResponse)
		for _, id := range m.Ids {
			l := &pb.LeaseAlive{Id: id}
			if f.leases[id] {
				l.TtlMs = 60_000
			}
			resp.Leases = append(resp.Leases, l)
		}
		f.mu.Unlock()
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

func (f *fake) RevokeLease(_ context.Context, r *pb.RevokeLeaseRequest) (*pb.RevokeLeaseResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leases, r.Id)
	for path, file := range f.files {
		if file.lease == r.Id {
			delete(f.files, path)
			delete(f.inodes, file.inode)
		}
	}
	return new(pb.RevokeLeaseResponse), nil
}

func (f *fake) Rename(_ context.Context, r *pb.RenameRequest) (*pb.MutateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.files[r.From.Path]
	switch {
	case file == nil:
		return nil, fserror.New(fserror.NotFound, "", "", "not there")
	case f.files[r.To.Path] != nil && !r.Overwrite:
		return nil, fserror.New(fserror.Exists, "", "", "it exists")
	}
	delete(f.files, r.From.Path)
	f.files[r.To.Path], file.path = file, r.To.Path
	if r.Detach {
		file.lease = 0
	}
	return new(pb.MutateResponse), nil
}

func (f *fake) Delete(_ context.Context, r *pb.DeleteRequest) (*pb.MutateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.files[r.At.Path]
	if file == nil {
		return nil, fserror.New(fserror.NotFound, "", "", "not there")
	}
	delete(f.files, r.At.Path)
	delete(f.inodes, file.inode)
	return new(pb.MutateResponse), nil
}
