package hdfs_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs/ipc"
)

// strange are the texts and numbers of requests that no client of HDFS makes.
var strange = struct {
	texts   []string
	numbers []uint64
}{
	[]string{
		"/f", "", "/", "/d", "x", "/a\x00b", "/\xff", "/../f", strings.Repeat("x", 70_000), strings.Repeat("/x", 35_000),
		"/.reserved/.inodes/18446744073709551615", "/.reserved/.inodes/2", "/" + strings.Repeat("x", 256),
	},
	[]uint64{0, 1, 7, math.MaxUint64, 1 << 63, 1<<63 - 1, 1 << 31, 1<<32 - 1, 1 << 40},
}

// fill gives all fields of a message values, each variant others.
func fill(m protoreflect.Message, variant, depth int) {
	fields := m.Descriptor().Fields()
	for n := range fields.Len() {
		f := fields.Get(n)
		value := func(i int) protoreflect.Value {
			number := strange.numbers[(variant+n+i)%len(strange.numbers)]
			text := strange.texts[(variant+n+i)%len(strange.texts)]
			if depth > 0 { // of perhaps thousands
				text = text[:min(len(text), 300)]
			}
			switch f.Kind() {
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(number&1 != 0)
			case protoreflect.EnumKind:
				values := f.Enum().Values()
				return protoreflect.ValueOfEnum(values.Get((variant + n) % values.Len()).Number())
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(text)
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte(text))
			case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
				return protoreflect.ValueOfUint32(uint32(number))
			case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
				return protoreflect.ValueOfUint64(number)
			case protoreflect.Int32Kind, protoreflect.Sint32Kind:
				return protoreflect.ValueOfInt32(int32(number))
			case protoreflect.Int64Kind, protoreflect.Sint64Kind:
				return protoreflect.ValueOfInt64(int64(number))
			default:
				return protoreflect.Value{}
			}
		}
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			most := 3000
			if f.Kind() == protoreflect.MessageKind {
				most = 300
			}
			for i := range []int{0, 2, most, 5}[(variant+n)%4] >> (6 * depth) {
				if f.Kind() == protoreflect.MessageKind {
					fill(list.AppendMutable().Message(), variant+i, depth+1)
				} else if i < 3 || f.Kind() != protoreflect.StringKind {
					list.Append(value(i))
				} else {
					list.Append(protoreflect.ValueOfString("/f"))
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(f).Message(), variant, depth+1)
		default:
			m.Set(f, value(0))
		}
	}
}

// TestStrangeRequests: whatever is in a request, it is answered, by an error of a Java name or
// a result; no call ends in a fault, or ends the connection, and what is not the caller's stays.
func TestStrangeRequests(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	check(t, fs.Mkdir(t.Context(), "/d", 0o777), fs.WriteFile(t.Context(), "/f", []byte("content")), fs.WriteFile(t.Context(), "/d/f", nil))
	var kinds []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		if name := m.Descriptor().FullName(); strings.HasPrefix(string(name), "leasefs.hadoop.") && strings.HasSuffix(string(name), "RequestProto") {
			kinds = append(kinds, m)
		}
		return true
	})
	slices.SortFunc(kinds, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	methods := hdfs.Methods()
	if len(kinds) < 30 || len(methods) < 100 {
		t.Fatalf("%d kinds of requests and %d methods", len(kinds), len(methods))
	}
	r := dial(t, s, "eve", "")
	for i, m := range methods {
		for j, kind := range kinds {
			for variant := range 2 {
				request := kind.New()
				fill(request, i+3*j+7*variant, 0)
				if proto.Size(request.Interface()) > ipc.DefaultMessage-1000 {
					t.Fatalf("a request for %s is too large to be taken", m.Method)
				}
				err := r.call(m.Protocol, m.Method, request.Interface(), new(pb.EmptyProto))
				var e *refusal
				if errors.As(err, &e) && (e.class == hadoop.RuntimeException || !strings.Contains(e.class, ".")) {
					t.Fatalf("%s with %.300v: %v", m.Method, request.Interface(), err)
				}
			}
		}
	}
	if got, err := fs.ReadFile(t.Context(), "/f"); err != nil || string(got) != "content" {
		t.Errorf("another's file: %q, %v", got, err)
	}
	if st := ask(r, "getFileInfo", of("/f"), new(pb.StatusResponseProto)).GetFs(); st.GetOwner() != "root" || st.GetPermission().GetPerm() != 0o644 {
		t.Errorf("another's file: %v", st)
	}
}
