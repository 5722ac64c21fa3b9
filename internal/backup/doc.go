// Package backup writes a folder from which a namenode can be started: an image
// of one moment and all blocks of its files, read from the block store if that is
// elsewhere. [Write] is all of it.
package backup
