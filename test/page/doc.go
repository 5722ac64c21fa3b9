// Package page opens the namenode's web page in a real browser, Chromium, and does what people
// do on it. With LEASEFS_PICTURES=FOLDER it leaves the pictures of docs/PAGE.md there.
package page
