package webhdfs

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/gateway/hadoop"
)

// encodings are how values of extended attributes travel.
const (
	asText   = "TEXT"
	asHex    = "HEX"
	asBase64 = "BASE64"
)

func encodeValue(v []byte, how string) string {
	switch how {
	case asText:
		return `"` + string(v) + `"`
	case asBase64:
		return "0s" + base64.StdEncoding.EncodeToString(v)
	default:
		return "0x" + hex.EncodeToString(v)
	}
}

// decodeValue is the reverse; what is in none of the forms is taken as it is.
func decodeValue(s string) ([]byte, error) {
	var (
		v   = []byte(s)
		err error
	)
	switch low := strings.ToLower(s); {
	case len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"':
		v = []byte(s[1 : len(s)-1])
	case strings.HasPrefix(low, "0x"):
		v, err = hex.DecodeString(s[2:])
	case strings.HasPrefix(low, "0s"):
		v, err = base64.StdEncoding.DecodeString(s[2:])
	}
	if err != nil {
		return nil, &badParam{"xattr.value", fmt.Sprintf("it cannot be decoded: %s", err)}
	}
	return v, nil
}

// xattrName checks the name of an extended attribute.
func (p params) xattrName() (string, error) {
	name, err := p.needed("xattr.name")
	if err != nil {
		return "", err
	}
	return userName(name)
}

func userName(name string) (string, error) {
	space, rest, _ := strings.Cut(name, ".")
	return hadoop.XattrName(space, rest)
}

func (q change) setXattr() error {
	name, err := q.params.xattrName()
	if err != nil {
		return err
	}
	value, err := decodeValue(q.params.text("xattr.value"))
	if err != nil {
		return err
	}
	mode, err := q.params.xattrMode()
	if err != nil {
		return err
	}
	return q.done(hadoop.NoXattr(q.fs.Xattrs(q.path).Set(q.ctx, name, value, mode)))
}

func (q change) removeXattr() error {
	name, err := q.params.xattrName()
	if err != nil {
		return err
	}
	return q.done(hadoop.NoXattr(q.fs.Xattrs(q.path).Remove(q.ctx, name)))
}

func (q lookup) getXattrs() error {
	how := strings.ToUpper(q.params.text("encoding"))
	if !slices.Contains([]string{"", asText, asHex, asBase64}, how) {
		return &badParam{"encoding", fmt.Sprintf("%.20q is none of TEXT, HEX, BASE64", how)}
	}
	var names []string
	for _, n := range q.params["xattr.name"] {
		if n == "" {
			continue
		}
		n, err := userName(n)
		if err != nil {
			return err
		}
		names = append(names, n)
	}
	all, err := q.fs.VisibleXattrs(q.ctx, q.path)
	if err != nil {
		return err
	}
	type xattr struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	found := []xattr{}
	for _, x := range all {
		if len(names) == 0 || slices.Contains(names, x.Name) {
			found = append(found, xattr{x.Name, encodeValue(x.Value, how)})
		}
	}
	if len(names) > 0 && len(found) < len(names) {
		return hadoop.Refuse(hadoop.XattrNotFound, "At least one of the attributes provided was not found.")
	}
	return q.json(map[string]any{"XAttrs": found})
}

// listXattrs answers a JSON list inside a JSON string, as HDFS does.
func (q lookup) listXattrs() error {
	all, err := q.fs.VisibleXattrs(q.ctx, q.path)
	if err != nil {
		return err
	}
	names := []string{}
	for _, x := range all {
		names = append(names, x.Name)
	}
	list, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return q.json(map[string]string{"XAttrNames": string(list)})
}
