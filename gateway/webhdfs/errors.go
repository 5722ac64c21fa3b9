package webhdfs

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/fserror"
)

// statuses are the HTTP statuses that are not 403, as HDFS has them.
var statuses = map[string]int{
	hadoop.Security:         http.StatusUnauthorized,
	hadoop.FileNotFound:     http.StatusNotFound,
	hadoop.Unsupported:      http.StatusBadRequest,
	hadoop.IllegalArgument:  http.StatusBadRequest,
	hadoop.HadoopIllegal:    http.StatusBadRequest,
	hadoop.InvalidPath:      http.StatusBadRequest,
	hadoop.RuntimeException: http.StatusInternalServerError,
}

// remoteException is what an error looks like to a client.
type remoteException struct {
	RemoteException struct {
		Exception     string `json:"exception"`
		JavaClassName string `json:"javaClassName"`
		Message       string `json:"message"`
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	class := hadoop.ClassOf(err)
	status := http.StatusForbidden
	if s, ok := statuses[class]; ok {
		status = s
	}
	var e *fserror.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())+1))
	}
	var x remoteException
	x.RemoteException.JavaClassName = class
	x.RemoteException.Exception = class[strings.LastIndexAny(class, ".$")+1:]
	x.RemoteException.Message = hadoop.Message(err)
	answer(w, status, x)
}

// answer writes a JSON value.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // whoever is gone does not read it
}
