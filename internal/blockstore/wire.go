package blockstore

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"time"
)

// Names that clients and stores share. A client sends the headers of a Signed
// request as they are; only the local store looks at path and query.
const (
	// HeaderChecksum carries the CRC32C of a whole object in base64 (see
	// EncodeChecksum), as S3 names it.
	HeaderChecksum = "X-Amz-Checksum-Crc32c"
	// HeaderIfNoneMatch with IfNoneMatchAny makes the first PUT win.
	HeaderIfNoneMatch = "If-None-Match"
	IfNoneMatchAny    = "*"

	// PathPrefix begins the path of each block of a local store.
	PathPrefix = "/v1/blocks/"
	// Query parameters of a signed URL of a local store.
	QueryExpires   = "exp" // Unix milliseconds, decimal
	QueryLength    = "len" // stored bytes, decimal; PUT only
	QueryChecksum  = "crc" // CRC32C of the object, 8 hexadecimal digits; PUT only
	QuerySignature = "sig" // HMAC-SHA256, 64 hexadecimal digits
)

// What an http.Server in front of a local store's Handler should be set to.
// It must leave ReadTimeout and WriteTimeout 0: the handler bounds a silent
// PUT itself (PutStall), and a slow reader of a block is no fault.
const (
	ServerHeaderTimeout  = 10 * time.Second // http.Server.ReadHeaderTimeout
	ServerIdleTimeout    = 2 * time.Minute  // http.Server.IdleTimeout
	ServerMaxHeaderBytes = 16 << 10         // http.Server.MaxHeaderBytes
	// PutStall is how long a PUT may bring no bytes before it is broken off.
	PutStall = 30 * time.Second
	// PutFirst is within what time the first byte of a PUT has to come.
	PutFirst = 10 * time.Second
	// PutRate is how many bytes a second a PUT has to bring while others wait
	// for its place.
	PutRate = 64 << 10
)

// EncodeChecksum is the value of HeaderChecksum: base64 of the big-endian CRC32C.
func EncodeChecksum(crc32c uint32) string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], crc32c)
	return base64.StdEncoding.EncodeToString(b[:])
}

// DecodeChecksum is the inverse of EncodeChecksum.
func DecodeChecksum(value string) (crc32c uint32, ok bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(value)
	if err != nil || len(b) != 4 || len(value) != 8 { // the decoder skips line ends
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// PutHeader is the set of headers that each store signs for a PUT.
// (net/http sends Content-Length from Request.ContentLength, whatever is here.)
func PutHeader(length int64, crc32c uint32) http.Header {
	return http.Header{
		"Content-Length":  {strconv.FormatInt(length, 10)},
		HeaderChecksum:    {EncodeChecksum(crc32c)},
		HeaderIfNoneMatch: {IfNoneMatchAny},
	}
}

// ErrorBody is the JSON body of every answer of a local store that is an error.
type ErrorBody struct {
	Error struct {
		Kind    string `json:"kind"` // fserror.Kind by name
		Message string `json:"message"`
	} `json:"error"`
}
