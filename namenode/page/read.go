package page

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxRead is how many bytes of a file are read at once.
	maxRead = 64 << 10
	// maxBlocks is of how many blocks; of a file of small ones less than maxRead is read.
	maxBlocks = 16
	// maxFollow is how long a read waits for a file to grow.
	maxFollow = 20 * time.Second
)

// readRequest asks for the content of a file.
type readRequest struct {
	Path   string `json:"path"`
	Inode  uint64 `json:"inode,string"` // instead of path
	Offset int64  `json:"offset"`
	// Last asks for the end of the file, instead of an offset.
	Last bool `json:"last"`
	// Follow waits until the file is longer than Offset, shorter, or closed; not for ever.
	Follow bool `json:"follow"`
}

// readAnswer is a part of a file.
type readAnswer struct {
	Attr   json.RawMessage `json:"attr"` // a pb.Attr
	Path   string          `json:"path"` // where the file is now
	Offset int64           `json:"offset"`
	Data   []byte          `json:"data"`
	// Cut is the txid of the file's last truncation: what was read before another one is
	// not what the file has now.
	Cut uint64 `json:"cut"`
}

// read reads a part of a file. What is in blocks is read here, and not by the browser, which
// asks no other host. Who may read it is said by GetFile.
func (p *Page) read(r *http.Request, a *asked, answer answers) error {
	var req readRequest
	if err := json.Unmarshal(a.Request, &req); err != nil {
		return fserror.New(fserror.InvalidArgument, "", "", "the request is none for a part of a file: %v", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWait)
	defer cancel()
	at := pb.Follow(req.Path)
	if req.Inode != 0 {
		at = pb.Inode(req.Inode)
	}
	file := func(get *pb.GetFileRequest) (resp *pb.GetFileResponse, err error) {
		get.Caller, get.At, get.NoUrls, get.MaxBlocks = a.caller(r), at, true, maxBlocks
		err = p.cfg.Call(ctx, pb.Namenode_GetFile_FullMethodName, get, func(m proto.Message) error {
			resp = m.(*pb.GetFileResponse) //nolint:errcheck,forcetypeassert // of that call
			return nil
		})
		return resp, err
	}
	if req.Last {
		now, err := file(&pb.GetFileRequest{Offset: 1 << 62})
		if err != nil {
			return err
		}
		at, req.Offset = pb.Inode(now.GetAttr().GetInode()), max(0, now.GetAttr().GetLength()-maxRead)
	}
	get := &pb.GetFileRequest{Offset: req.Offset, Length: maxRead}
	if req.Follow {
		get.WaitBeyond, get.WaitMs, get.OrBelow = req.Offset, maxFollow.Milliseconds(), true
	}
	f, err := file(get)
	if err != nil {
		return err
	}
	data, err := p.content(ctx, a.User, f, req.Offset)
	if err != nil {
		return err
	}
	attr, err := messages.Marshal(f.GetAttr())
	if err != nil {
		return err
	}
	out, err := json.Marshal(readAnswer{Attr: attr, Path: f.GetPath(), Offset: req.Offset, Data: data, Cut: f.GetCut()})
	if err != nil {
		return err
	}
	return answer(out)
}

// content is what f tells of a file from offset on, at most maxRead bytes.
func (p *Page) content(ctx context.Context, user string, f *pb.GetFileResponse, offset int64) ([]byte, error) {
	data := []byte{}
	begin := f.GetBlocksOffset()
	for _, b := range f.GetBlocks() {
		part, err := p.block(ctx, user, b)
		if err != nil {
			return nil, err
		}
		data = append(data, part[min(max(offset-begin, 0), int64(len(part))):]...)
		begin += int64(len(part))
		if len(data) >= maxRead {
			return data[:maxRead], nil
		}
	}
	if f.GetMoreBlocks() {
		return data, nil
	}
	return append(data, f.GetTail()...), nil
}

// block is what of a block belongs to its file. Few are read at a time, in turns of users.
func (p *Page) block(ctx context.Context, user string, b *pb.Block) ([]byte, error) {
	if err := p.fetches.Begin(ctx, user); err != nil {
		return nil, fserror.Ended(ctx, "", "")
	}
	defer p.fetches.End(user)
	object, err := p.cfg.Fetch(ctx, b)
	if err != nil {
		return nil, err
	}
	if int64(len(object)) < b.GetUsedLength() {
		return nil, fserror.New(fserror.Damaged, "", "", "block %d/%d has %d bytes, %d belong to the file", b.GetTerm(), b.GetSeq(), len(object), b.GetUsedLength())
	}
	return object[:b.GetUsedLength()], nil
}
