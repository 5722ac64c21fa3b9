package webhdfs

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/client"
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
	space, rest, ok := strings.Cut(name, ".")
	switch {
	case !ok || rest == "":
		return "", refuse(hadoopIllegal, "An XAttr name must be prefixed with user/trusted/security/system/raw, followed by a '.'")
	case !strings.EqualFold(space, "user"):
		return "", refuse(unsupported, "leasefs keeps extended attributes of the namespace user only, not %.255q", name)
	case "user."+rest == hadoopXattr:
		return "", refuse(accessControl, "%s is the gateway's own; set replication instead", hadoopXattr)
	}
	return "user." + rest, nil
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
	return q.done(noXattr(q.fs.Xattrs(q.path).Set(q.ctx, name, value, mode)))
}

func (q change) removeXattr() error {
	name, err := q.params.xattrName()
	if err != nil {
		return err
	}
	return q.done(noXattr(q.fs.Xattrs(q.path).Remove(q.ctx, name)))
}

// noXattr is HDFS's error for an extended attribute that is missing, or there
// already: an IOException, as opposed to a file's.
func noXattr(err error) error {
	if client.IsNoXattr(err) || client.KindOf(err) == client.ErrExists {
		return named(ioException, err)
	}
	return err
}

// visible are the extended attributes that clients see.
func (q lookup) visible() ([]client.Xattr, error) {
	all, err := q.fs.Xattrs(q.path).All(q.ctx)
	return slices.DeleteFunc(slices.Clone(all), func(x client.Xattr) bool { return x.Name == hadoopXattr }), err
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
	all, err := q.visible()
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
		return refuse(xattrNotFound, "At least one of the attributes provided was not found.")
	}
	return q.json(map[string]any{"XAttrs": found})
}

// listXattrs answers a JSON list inside a JSON string, as HDFS does.
func (q lookup) listXattrs() error {
	all, err := q.visible()
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
