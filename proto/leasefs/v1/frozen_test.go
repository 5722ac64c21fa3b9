package leasefsv1

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// TestFrozenWire holds the wire contract to those of all releases: it may only grow. Who releases
// something adds testdata/frozen/wire-N, as protoc --descriptor_set_out writes it.
func TestFrozenWire(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/frozen/wire-*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, broken := range breaks(frozenWire(t, file), File_leasefs_v1_leasefs_proto) {
			t.Errorf("%s: %s", filepath.Base(file), broken)
		}
	}
}

func frozenWire(t *testing.T, file string) protoreflect.FileDescriptor {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	fd, err := protodesc.NewFile(set.GetFile()[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// breaks says what a program of the old contract would miss in the new one, or take for something else.
func breaks(was, is protoreflect.FileDescriptor) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for s := range each(was.Services()) {
		now := is.Services().ByName(s.Name())
		if now == nil {
			say("service %s is gone", s.Name())
			continue
		}
		for m := range each(s.Methods()) {
			switch n := now.Methods().ByName(m.Name()); {
			case n == nil:
				say("%s is gone", m.FullName())
			case n.Input().FullName() != m.Input().FullName() || n.Output().FullName() != m.Output().FullName() ||
				n.IsStreamingClient() != m.IsStreamingClient() || n.IsStreamingServer() != m.IsStreamingServer():
				say("%s has another request or answer", m.FullName())
			}
		}
	}
	enums := func(was, is interface {
		Enums() protoreflect.EnumDescriptors
	}) {
		for e := range each(was.Enums()) {
			now := is.Enums().ByName(e.Name())
			if now == nil {
				say("%s is gone", e.FullName())
				continue
			}
			for v := range each(e.Values()) {
				if n := now.Values().ByNumber(v.Number()); n == nil || n.Name() != v.Name() {
					say("%s is not %d any more", v.FullName(), v.Number())
				}
			}
		}
	}
	var messages func(was, is protoreflect.MessageDescriptors)
	messages = func(was, is protoreflect.MessageDescriptors) {
		for m := range each(was) {
			now := is.ByName(m.Name())
			if now == nil {
				say("%s is gone", m.FullName())
				continue
			}
			for f := range each(m.Fields()) {
				if n := now.Fields().ByNumber(f.Number()); n == nil || shape(n) != shape(f) {
					say("%s is not field %d, %s, any more", f.FullName(), f.Number(), shape(f))
				}
			}
			enums(m, now)
			messages(m.Messages(), now.Messages())
		}
	}
	enums(was, is)
	messages(was.Messages(), is.Messages())
	return all
}

// shape is what the other side has to know of a field, and its name.
func shape(f protoreflect.FieldDescriptor) string {
	of := ""
	switch {
	case f.Message() != nil:
		of = string(f.Message().FullName())
	case f.Enum() != nil:
		of = string(f.Enum().FullName())
	}
	oneof := ""
	if o := f.ContainingOneof(); o != nil {
		oneof = string(o.Name())
	}
	return fmt.Sprint(f.Name(), " ", f.Cardinality(), " ", f.Kind(), " ", of, " ", oneof, " ", f.HasPresence())
}

// each goes through a list of descriptors.
func each[T any](list interface {
	Len() int
	Get(i int) T
}) func(func(T) bool) {
	return func(yield func(T) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}

// TestBreaks: each kind of change that a program of another release could not live with is found,
// and none that it can.
func TestBreaks(t *testing.T) {
	base := func() *descriptorpb.FileDescriptorProto {
		return protodesc.ToFileDescriptorProto(File_leasefs_v1_leasefs_proto)
	}
	message := func(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.DescriptorProto {
		return f.GetMessageType()[slices.IndexFunc(f.GetMessageType(), func(m *descriptorpb.DescriptorProto) bool { return m.GetName() == name })]
	}
	for name, c := range map[string]struct {
		change func(*descriptorpb.FileDescriptorProto)
		breaks bool
	}{
		"nothing": {func(*descriptorpb.FileDescriptorProto) {}, false},
		"a new field": {func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "Caller")
			m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{Name: proto.String("new"), Number: proto.Int32(999), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()})
		}, false},
		"a new message": {func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType = append(f.MessageType, &descriptorpb.DescriptorProto{Name: proto.String("New")})
		}, false},
		"a field is gone":            {func(f *descriptorpb.FileDescriptorProto) { m := message(f, "Caller"); m.Field = m.Field[1:] }, true},
		"a field has another number": {func(f *descriptorpb.FileDescriptorProto) { message(f, "Caller").Field[0].Number = proto.Int32(998) }, true},
		"a field has another name":   {func(f *descriptorpb.FileDescriptorProto) { message(f, "Caller").Field[0].Name = proto.String("who") }, true},
		"a field has another type": {func(f *descriptorpb.FileDescriptorProto) {
			message(f, "Caller").Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		}, true},
		"a field is a list": {func(f *descriptorpb.FileDescriptorProto) {
			message(f, "Caller").Field[0].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}, true},
		"a method is gone":  {func(f *descriptorpb.FileDescriptorProto) { s := f.Service[0]; s.Method = s.Method[1:] }, true},
		"a service is gone": {func(f *descriptorpb.FileDescriptorProto) { f.Service = f.Service[1:] }, true},
		"a method streams": {func(f *descriptorpb.FileDescriptorProto) {
			m := f.Service[0].Method[1]
			m.ServerStreaming = proto.Bool(!m.GetServerStreaming())
		}, true},
		"a method answers something else": {func(f *descriptorpb.FileDescriptorProto) {
			f.Service[0].Method[1].OutputType = proto.String(".leasefs.v1.Caller")
		}, true},
		"a value of an enum is gone": {func(f *descriptorpb.FileDescriptorProto) { e := f.EnumType[0]; e.Value = e.Value[:len(e.Value)-1] }, true},
	} {
		f := base()
		c.change(f)
		now, err := protodesc.NewFile(f, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := breaks(File_leasefs_v1_leasefs_proto, now); (len(got) > 0) != c.breaks {
			t.Errorf("%s: %v", name, got)
		}
	}
}
