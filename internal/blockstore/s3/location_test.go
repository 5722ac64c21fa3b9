package s3_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url  string
		want s3.Location
	}{
		{"s3://blocks", s3.Location{Bucket: "blocks"}},
		{"s3://blocks/", s3.Location{Bucket: "blocks"}},
		{"s3://my.blocks/a/b_C-1/", s3.Location{Bucket: "my.blocks", Prefix: "a/b_C-1", PathStyle: true}},
		{"s3://blocks/p?region=eu-west-1", s3.Location{Bucket: "blocks", Prefix: "p", Region: "eu-west-1"}},
		{"s3://blocks/p?endpoint=https://host:9000&region=x", s3.Location{Bucket: "blocks", Prefix: "p", Endpoint: "https://host:9000", Region: "x", PathStyle: true}},
		{"s3://blocks?endpoint=https%3A%2F%2FHOST%3A443/", s3.Location{Bucket: "blocks", Endpoint: "https://host", PathStyle: true}},
		{"s3://blocks?endpoint=http://[::1]:80", s3.Location{Bucket: "blocks", Endpoint: "http://[::1]", PathStyle: true}},
		{"s3://blocks?path-style=false&endpoint=http://s3.test", s3.Location{Bucket: "blocks", Endpoint: "http://s3.test"}},
		{"s3://blocks?path-style=true", s3.Location{Bucket: "blocks", PathStyle: true}},
	} {
		got, err := s3.ParseURL(c.url)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.url, got, err, c.want)
		}
		if again, err := s3.ParseURL(got.String()); err != nil || again != got {
			t.Errorf("%s: String is %s, which is %+v, %v", c.url, got, again, err)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, c := range []struct{ url, says string }{
		{"file:///x", "s3://"},
		{"s3:blocks", "s3://"},
		{"s3://", "bucket"},
		{"s3:///prefix", "bucket"},
		{"s3://UPPER", "bucket"},
		{"s3://ab", "bucket"},
		{"s3://a..b", "bucket"},
		{"s3://blocks:9000/x", "bucket"},
		{"s3://key:secret@blocks/x", "AWS_ACCESS_KEY_ID"},
		{"s3://blocks/a//b", "prefix"},
		{"s3://blocks/a b", "prefix"},
		{"s3://blocks/a/../b", "prefix"},
		{"s3://blocks/" + strings.Repeat("a", 600), "prefix"},
		{"s3://blocks/a#b", "#"},
		{"s3://blocks?enpoint=http://h", `"enpoint"`},
		{"s3://blocks?region=a&region=b", `"region"`},
		{"s3://blocks?region=", `"region"`},
		{"s3://blocks?region=a/b", "region"},
		{"s3://blocks?path-style=yes", "path-style"},
		{"s3://blocks?endpoint=host:9000", "endpoint"},
		{"s3://blocks?endpoint=http://host/path", "endpoint"},
		{"s3://blocks?endpoint=http://u:p@host", "endpoint"},
		{"s3://blocks?region=a;path-style=true", "parameters"},
		{"s3://blocks/%zz", "parsed"},
	} {
		_, err := s3.ParseURL(c.url)
		if !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want InvalidArgument that says %q", c.url, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") && !strings.Contains(c.url, "secret@") {
			t.Errorf("%s: the error has the secret: %v", c.url, err)
		}
	}
}
