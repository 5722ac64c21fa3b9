package webhdfs_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/kdc"
)

// right is what an operation needs of who asks for it.
type right int

const (
	anybody  right = iota // who may use the gateway: the namenode is not asked
	proves                // likewise, and shows no delegation token
	known                 // whom the namenode lets the gateway act for
	searches              // what is in ann's directory
	reads                 // and what is in there
	writes                // into her directory and files
	owns                  // be ann, or a superuser
	rules                 // be a superuser
	tokens                // anybody, where there are tokens: then it changes nothing
	lacks                 // there is no such thing, for anybody
)

// asking is how an operation is asked for in the test, and what it needs.
type asking struct {
	needs right
	// path and query say about what: @ is a directory of ann's own, with file f, link l, and x;
	// for RECOVERLEASE also o, which she is writing.
	path, query string
	body        string
}

var askings = map[string]asking{
	"GET OPEN":                          {needs: reads, path: "@/f"},
	"GET GETFILESTATUS":                 {needs: searches, path: "@/f"},
	"GET GETFILELINKSTATUS":             {needs: searches, path: "@/l"},
	"GET GETLINKTARGET":                 {needs: searches, path: "@/l"},
	"GET LISTSTATUS":                    {needs: reads, path: "@"},
	"GET LISTSTATUS_BATCH":              {needs: reads, path: "@"},
	"GET GETCONTENTSUMMARY":             {needs: reads, path: "@"},
	"GET GETQUOTAUSAGE":                 {needs: reads, path: "@"},
	"GET GETFILECHECKSUM":               {needs: reads, path: "@/f"},
	"GET GETHOMEDIRECTORY":              {needs: anybody, path: "/"},
	"GET GETTRASHROOT":                  {needs: anybody, path: "@/f"},
	"GET GETTRASHROOTS":                 {needs: searches, path: "/"},
	"GET GETDELEGATIONTOKEN":            {needs: proves, path: "/"},
	"GET GETFILEBLOCKLOCATIONS":         {needs: reads, path: "@/f"},
	"GET GET_BLOCK_LOCATIONS":           {needs: reads, path: "@/f"},
	"GET GETXATTRS":                     {needs: reads, path: "@/f"},
	"GET LISTXATTRS":                    {needs: reads, path: "@/f"},
	"GET CHECKACCESS":                   {needs: writes, path: "@", query: "fsaction=rwx"},
	"GET GETSERVERDEFAULTS":             {needs: anybody, path: "/"},
	"GET GETSTATUS":                     {needs: known, path: "/"},
	"GET GETSTORAGEPOLICY":              {needs: searches, path: "@/f"},
	"GET GETALLSTORAGEPOLICY":           {needs: anybody, path: "/"},
	"GET GETACLSTATUS":                  {needs: searches, path: "@/f"},
	"GET GETECPOLICY":                   {needs: searches, path: "@/f"},
	"GET GETECPOLICIES":                 {needs: lacks, path: "/"},
	"GET GETECCODECS":                   {needs: lacks, path: "/"},
	"GET GETSNAPSHOTDIFF":               {needs: owns, path: "@", query: "oldsnapshotname=s"},
	"GET GETSNAPSHOTDIFFLISTING":        {needs: owns, path: "@", query: "oldsnapshotname=s"},
	"GET GETSNAPSHOTTABLEDIRECTORYLIST": {needs: known, path: "/"},
	"GET GETSNAPSHOTLIST":               {needs: reads, path: "@"},
	"GET GETLEASE":                      {needs: searches, path: "@/f"},
	"GET ISFILECLOSED":                  {needs: searches, path: "@/f"},
	"PUT RECOVERLEASE":                  {needs: writes, path: "@/o"},
	"POST RECOVERLEASE":                 {needs: writes, path: "@/o"},
	"PUT RENEWLEASE":                    {needs: anybody, path: "/", query: "clientname=c"},
	"PUT CREATE":                        {needs: writes, path: "@/f", query: "overwrite=true", body: "new"},
	"PUT MKDIRS":                        {needs: writes, path: "@/d"},
	"PUT CREATESYMLINK":                 {needs: writes, path: "@/m", query: "destination=@/f"},
	"PUT RENAME":                        {needs: writes, path: "@/f", query: "destination=@/g"},
	"PUT SETREPLICATION":                {needs: writes, path: "@/f", query: "replication=2"},
	"PUT SETOWNER":                      {needs: owns, path: "@/f", query: "group=staff"},
	"PUT SETPERMISSION":                 {needs: owns, path: "@/f", query: "permission=700"},
	"PUT SETTIMES":                      {needs: owns, path: "@/f", query: "modificationtime=1000&accesstime=1000"},
	"PUT SETXATTR":                      {needs: writes, path: "@/f", query: "xattr.name=user.b&xattr.value=0x41&flag=CREATE"},
	"PUT REMOVEXATTR":                   {needs: writes, path: "@/f", query: "xattr.name=user.a"},
	"PUT RENEWDELEGATIONTOKEN":          {needs: tokens, path: "/", query: "token=RENEWED"},
	"PUT CANCELDELEGATIONTOKEN":         {needs: lacks, path: "/", query: "token=RENEWED"},
	"PUT MODIFYACLENTRIES":              {needs: owns, path: "@/f", query: "aclspec=user:eve:rwx"},
	"PUT REMOVEACLENTRIES":              {needs: owns, path: "@/f", query: "aclspec=user:carl:"},
	"PUT REMOVEDEFAULTACL":              {needs: owns, path: "@"},
	"PUT REMOVEACL":                     {needs: owns, path: "@/f"},
	"PUT SETACL":                        {needs: owns, path: "@/f", query: "aclspec=user::rwx,group::---,other::---"},
	"PUT ALLOWSNAPSHOT":                 {needs: rules, path: "@"},
	"PUT DISALLOWSNAPSHOT":              {needs: rules, path: "@"},
	"PUT CREATESNAPSHOT":                {needs: owns, path: "@", query: "snapshotname=new"},
	"PUT RENAMESNAPSHOT":                {needs: owns, path: "@", query: "oldsnapshotname=s&snapshotname=new"},
	"PUT SETSTORAGEPOLICY":              {needs: lacks, path: "@/f"},
	"PUT SATISFYSTORAGEPOLICY":          {needs: lacks, path: "@/f"},
	"PUT ENABLEECPOLICY":                {needs: lacks, path: "/"},
	"PUT DISABLEECPOLICY":               {needs: lacks, path: "/"},
	"PUT SETECPOLICY":                   {needs: lacks, path: "@"},
	"PUT SETQUOTA":                      {needs: rules, path: "@", query: "namespacequota=100"},
	"PUT SETQUOTABYSTORAGETYPE":         {needs: lacks, path: "@"},
	"POST APPEND":                       {needs: writes, path: "@/f", body: "more"},
	"POST CONCAT":                       {needs: writes, path: "@/f", query: "sources=@/x"},
	"POST TRUNCATE":                     {needs: writes, path: "@/f", query: "newlength=1"},
	"POST UNSETSTORAGEPOLICY":           {needs: lacks, path: "@/f"},
	"POST UNSETECPOLICY":                {needs: lacks, path: "@"},
	"DELETE DELETE":                     {needs: writes, path: "@", query: "recursive=true"},
	"DELETE DELETESNAPSHOT":             {needs: owns, path: "@", query: "snapshotname=s"},
}

// url is the request's, about the directory dir, by who.
func (a asking) url(op, dir, who string) string {
	u := a.path + "?op=" + op
	if a.query != "" {
		u += "&" + a.query
	}
	return strings.ReplaceAll(u, "@", dir) + "&" + who
}

// TestRightsOfEachOperation asks for each operation as each kind of user: what he may is decided
// by the owner, the group, the mode and the ACL, by the gateway's users who may act for others,
// and by the namenode's rules for the gateway. It changes nothing for who may not.
func TestRightsOfEachOperation(t *testing.T) {
	dir := t.TempDir()
	file, proxies := filepath.Join(dir, "tokens"), filepath.Join(dir, "proxies")
	secret := proof.NewToken()
	line, err := proof.Line(secret, "gw")
	for name, text := range map[string]string{file: line, filepath.Join(dir, "gw"): "gw " + secret, proxies: "gw users=root,ann,gus,eve,carl,rita,lee,dan,sue groups=supergroup from=*"} {
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string][]string{"ann": {"staff"}, "gus": {"staff"}, "dan": {"staff"}, "lee": {"lab"}, "sue": {"supergroup"}}
	n := env.Start(t, func(c *namenode.Config) {
		if c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, file); err == nil {
			c.Identity.Proxies, err = proof.OpenProxies(clock.System{}, proxies)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Supergroup, c.Groups = "supergroup", func(user string) []string { return groups[user] }
	})
	acts := func(c *webhdfs.Config) { c.Client.TokenFile, c.Proxies = filepath.Join(dir, "gw"), []string{"hue"} }
	s := gateway(t, n, acts)

	const realm = "WEB.TEST"
	keytab := kdc.Start(t, realm).Keytab("HTTP/127.0.0.1@"+realm, filepath.Join(dir, "keytab"))
	guard, err := auth.New(clock.System{}, auth.Config{Keytab: keytab, Principal: "HTTP/127.0.0.1@" + realm, Web: true})
	if err != nil {
		t.Fatal(err)
	}
	guarded := gateway(t, n, acts, func(c *webhdfs.Config) { c.Guard = guard })
	issue := func(user, by string) string {
		tok, err := guard.Issue(user, by, "")
		if err != nil {
			t.Fatal(err)
		}
		return url.QueryEscape(tok.EncodeURL(auth.KindWebHDFS))
	}
	token := func(user, by string) string { return "delegation=" + issue(user, by) + "&user.name=" }

	owner := []right{searches, reads, writes, owns}
	ruler := append([]right{rules}, owner...)
	columns := []struct {
		name string
		at   *webhdfs.Server
		who  string
		may  []right // besides anybody and known
		// refused is what he is told whatever he asks; empty: it depends.
		refused string
	}{
		{"the owner", s, "user.name=ann", owner, ""},
		{"one of the group", s, "user.name=gus", []right{searches, reads}, ""},
		{"another", s, "user.name=eve", nil, ""},
		{"a user whom the ACL names", s, "user.name=carl", []right{searches, reads, writes}, ""},
		{"a user whom the ACL lets read", s, "user.name=rita", []right{searches, reads}, ""},
		{"one of a group that the ACL names", s, "user.name=lee", []right{searches, reads, writes}, ""},
		{"one of the group to whom the ACL gives nothing", s, "user.name=dan", nil, ""},
		{"the superuser", s, "user.name=root", ruler, ""},
		{"one of the supergroup", s, "user.name=sue", ruler, ""},
		{"a proxy, for the owner", s, "user.name=hue&doas=ann", owner, ""},
		{"a proxy, for one of the group", s, "user.name=hue&doas=gus", []right{searches, reads}, ""},
		{"a proxy, for another", s, "user.name=hue&doas=eve", nil, ""},
		{"who is no proxy, for the owner", s, "user.name=eve&doas=ann", nil, "AuthorizationException"},
		{"who is no proxy, for the superuser", s, "user.name=ann&doas=root", nil, "AuthorizationException"},
		{"whom no rule lets the gateway act for", s, "user.name=zoe", nil, "no rule"},
		{"a proxy, for whom no rule lets the gateway act for", s, "user.name=hue&doas=zoe", nil, "no rule"},
		{"who does not say who he is", s, "user.name=", nil, "SecurityException"},
		{"a name without a proof, where one is needed", guarded, "user.name=ann", nil, "SecurityException"},
		{"a proxy's name without a proof", guarded, "user.name=hue&doas=ann", nil, "SecurityException"},
		{"a token of the owner", guarded, token("ann", "ann"), owner, ""},
		{"a token of another", guarded, token("eve", "eve"), nil, ""},
		{"a token for the owner, of a proxy", guarded, token("ann", "hue"), owner, ""},
		{"a token for the owner, of who is no proxy", guarded, token("ann", "eve"), nil, "AuthorizationException"},
		{"a token that was changed", guarded, strings.Replace(token("ann", "ann"), "delegation=", "delegation=A", 1), nil, "Exception"},
		{"another's token, for the owner", guarded, token("eve", "eve") + "&doas=ann", nil, "AccessControlException"},
	}

	renewed := issue("ann", "ann")

	fsys := n.Client(t, func(c *client.Config) { c.User, c.RealUser, c.TokenFile = "root", "gw", filepath.Join(dir, "gw") })
	if err := fsys.SetAttr(t.Context(), "/", client.AttrChange{User: "ann", Group: "staff"}); err != nil {
		t.Fatal(err)
	}
	list := "user::rwx,user:carl:rwx,user:rita:r-x,user:dan:---,group::r-x,group:lab:rwx,mask::rwx,other::---"
	anns := n.Client(t, func(c *client.Config) { c.User, c.RealUser, c.TokenFile = "ann", "gw", filepath.Join(dir, "gw") })
	want(t, "the ACL", once(t, s, "PUT", "/?op=SETACL&user.name=ann&aclspec="+list+",default:"+strings.ReplaceAll(list, ",", ",default:"), ""), 200, "")
	made := 0
	fresh := func(op string) string {
		made++
		dir := fmt.Sprintf("/t%d", made)
		for _, r := range []struct{ method, url, body string }{
			{"PUT", dir + "?op=MKDIRS", ""}, {"PUT", dir + "/f?op=CREATE", "content"}, {"PUT", dir + "/x?op=CREATE", "other content"},
			{"PUT", dir + "/l?op=CREATESYMLINK&destination=" + dir + "/f", ""}, {"PUT", dir + "/f?op=SETXATTR&xattr.name=user.a&xattr.value=0x41&flag=CREATE", ""},
		} {
			if got := both(t, s, r.method, r.url+"&user.name=ann&permission=770", r.body); got.status >= 300 {
				t.Fatalf("%s: %d %s", r.url, got.status, got.body)
			}
		}
		if op == "RECOVERLEASE" {
			if _, err := anns.Create(t.Context(), dir+"/o", client.WithMode(0o770)); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(op, "SNAPSHOT") {
			want(t, "allow", once(t, s, "PUT", dir+"?op=ALLOWSNAPSHOT&user.name=root", ""), 200, "")
			if op != "DISALLOWSNAPSHOT" {
				want(t, "make", once(t, s, "PUT", dir+"?op=CREATESNAPSHOT&snapshotname=s&user.name=ann", ""), 200, "")
			}
		}
		return dir
	}
	look := func(dir string) string {
		var b strings.Builder
		for _, u := range []string{dir + "?op=LISTSTATUS", dir + "?op=GETSNAPSHOTLIST", dir + "?op=GETACLSTATUS", dir + "/f?op=GETACLSTATUS", dir + "/f?op=GETXATTRS", dir + "/f?op=OPEN", dir + "/o?op=ISFILECLOSED"} {
			b.WriteString(both(t, s, "GET", u+"&user.name=ann", "").body)
		}
		return b.String()
	}
	for method, names := range webhdfs.Operations() {
		for _, op := range names {
			a, said := askings[method+" "+op]
			if !said {
				t.Errorf("it is not said what %s %s needs", method, op)
				continue
			}
			t.Run(op, func(t *testing.T) {
				dir, before := "", ""
				for _, c := range columns {
					if dir == "" {
						dir = fresh(op)
						before = look(dir)
					}
					needs, denied := a.needs, "AccessControlException"
					switch {
					case needs == proves:
						denied = "Delegation Token can be issued only"
					case needs == tokens && c.at == guarded:
						needs = anybody
					case needs == tokens:
						needs = lacks
					}
					may := needs == anybody || needs == known || needs == proves && !strings.HasPrefix(c.who, "delegation=") || slices.Contains(c.may, needs)
					r := both(t, c.at, method, strings.Replace(a.url(op, dir, c.who), "RENEWED", renewed, 1), a.body)
					switch {
					case c.refused == "no rule" && needs <= proves && r.status == 200:
					case c.refused == "no rule" && needs == lacks && r.status == 400:
					case c.refused != "":
						if r.status != 401 && r.status != 403 || !strings.Contains(r.body, c.refused) {
							t.Errorf("%s: %d %s, want a refusal with %q", c.name, r.status, r.body, c.refused)
						}
					case needs == lacks:
						if r.status != 400 || !strings.Contains(r.body, "UnsupportedOperationException") {
							t.Errorf("%s: %d %s", c.name, r.status, r.body)
						}
					case may:
						if r.status >= 300 {
							t.Errorf("%s: %d %s, and may", c.name, r.status, r.body)
						}
						if method != "GET" {
							dir = "" // what was changed is another's no more
							continue
						}
					case r.status != 403 || !strings.Contains(r.body, denied):
						t.Errorf("%s: %d %s, and may not", c.name, r.status, r.body)
					}
					if method != "GET" {
						if after := look(dir); after != before {
							t.Errorf("%s was refused, and changed it:\n%s\n%s", c.name, before, after)
							dir = ""
						}
					}
				}
			})
		}
	}
	for key := range askings {
		method, op, _ := strings.Cut(key, " ")
		if !slices.Contains(webhdfs.Operations()[method], op) {
			t.Errorf("there is no %s", key)
		}
	}
}
