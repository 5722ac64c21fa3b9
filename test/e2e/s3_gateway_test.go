package e2e_test

import (
	"bytes"
	"crypto/md5" //nolint:gosec // of S3
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasefs/leasefs/test/env/s3env"
)

// TestS3OverAMount: what docs/POSIX.md shows. An S3 server over a mount, with a real
// client: objects are files, and files are objects; parts, ranges, copies, conditions, lists.
func TestS3OverAMount(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t)
	m := n.mount(ctx)
	srv := s3env.StartOver(t, m.dir)
	c := s3.New(s3.Options{
		BaseEndpoint: &srv.Endpoint, Region: srv.Region, Credentials: srv.Credentials(), UsePathStyle: true,
	})
	bucket := &srv.Bucket
	put := func(key string, content []byte, mods ...func(*s3.PutObjectInput)) error {
		in := &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: bytes.NewReader(content), Metadata: map[string]string{"origin": "a test"}}
		for _, mod := range mods {
			mod(in)
		}
		_, err := c.PutObject(ctx, in)
		return err
	}
	get := func(key, span string) ([]byte, *s3.GetObjectOutput) {
		t.Helper()
		in := &s3.GetObjectInput{Bucket: bucket, Key: &key}
		if span != "" {
			in.Range = &span
		}
		o, err := c.GetObject(ctx, in)
		if err != nil {
			t.Fatalf("get %s: %v", key, err)
		}
		defer o.Body.Close()
		b, err := io.ReadAll(o.Body)
		if err != nil {
			t.Fatalf("get %s: %v", key, err)
		}
		return b, o
	}

	// An object is a file.
	small := []byte("an object\n")
	if err := put("dir/sub/small", small); err != nil {
		t.Fatal(err)
	}
	if got := n.run(ctx, "cat", "/"+srv.Bucket+"/dir/sub/small"); got != string(small) {
		t.Errorf("the file has %q", got)
	}
	got, o := get("dir/sub/small", "")
	if !bytes.Equal(got, small) || o.Metadata["origin"] != "a test" || strings.Trim(aws.ToString(o.ETag), `"`) != sum(small) {
		t.Errorf("%q, metadata %v, ETag %s", got, o.Metadata, aws.ToString(o.ETag))
	}

	// A file is an object.
	n.write(ctx, "a file\n", "create", "/"+srv.Bucket+"/dir/file")
	if got, _ := get("dir/file", "bytes=2-5"); string(got) != "file" {
		t.Errorf("the object has %q", got)
	}

	// Many parts at once, put together.
	part := 5 << 20 // no part but the last is smaller
	large := make([]byte, 3*part+123)
	_, _ = rand.Read(large)
	key := "large"
	up, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	parts := make([]types.CompletedPart, 4)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			no := aws.Int32(int32(i + 1))
			r, err := c.UploadPart(ctx, &s3.UploadPartInput{Bucket: bucket, Key: &key, UploadId: up.UploadId, PartNumber: no, Body: bytes.NewReader(large[i*part : min((i+1)*part, len(large))])})
			if errs[i] = err; err == nil {
				parts[i] = types.CompletedPart{ETag: r.ETag, PartNumber: no}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: bucket, Key: &key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := get(key, ""); !bytes.Equal(got, large) {
		t.Errorf("%d bytes, or others than the %d that were put", len(got), len(large))
	}
	if got := n.run(ctx, "cat", "/"+srv.Bucket+"/large"); got != string(large) {
		t.Errorf("the file has %d bytes, or others", len(got))
	}

	// Copied, replaced, only if it is not there, listed by pages, deleted.
	copied := "copy"
	if _, err := c.CopyObject(ctx, &s3.CopyObjectInput{Bucket: bucket, Key: &copied, CopySource: aws.String(srv.Bucket + "/large")}); err != nil {
		t.Fatal(err)
	}
	if got, _ := get(copied, fmt.Sprintf("bytes=%d-", 3*part)); !bytes.Equal(got, large[3*part:]) {
		t.Errorf("the end of the copy has %d bytes, or others", len(got))
	}
	if err := put(copied, small); err != nil {
		t.Fatal(err)
	}
	if got, _ := get(copied, ""); !bytes.Equal(got, small) {
		t.Errorf("replaced, it has %d bytes", len(got))
	}
	if err := put(copied, small, func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") }); err == nil || !strings.Contains(err.Error(), "PreconditionFailed") {
		t.Errorf("put, only if it is not there: %v", err)
	}
	var listed []string
	pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: bucket, MaxKeys: aws.Int32(2)})
	for pages.HasMorePages() {
		p, err := pages.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range p.Contents {
			listed = append(listed, aws.ToString(o.Key))
		}
	}
	if want := []string{"copy", "dir/file", "dir/sub/small", "large"}; !slices.Equal(listed, want) {
		t.Errorf("listed %q, want %q", listed, want)
	}
	for _, key := range listed {
		if _, err := c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: &key}); err != nil {
			t.Error(err)
		}
	}
	if left := strings.TrimSpace(n.run(ctx, "find", "/"+srv.Bucket, "--type", "f")); left != "" {
		t.Errorf("left: %q", left)
	}
}

func sum(b []byte) string {
	s := md5.Sum(b) //nolint:gosec // of S3
	return hex.EncodeToString(s[:])
}
