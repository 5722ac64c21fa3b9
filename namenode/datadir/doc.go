// Package datadir is a namenode's data folder: its lock, its VERSION, the secret
// that signs URLs of blocks, and the names of what else is in it.
//
// VERSION is written last, so a folder that has it is complete. One that has
// FORMATTING instead was never used, and is made again. A folder of another
// namespace, of a newer format or of a namenode of the other kind (alone, or one
// of several) is refused before anything in it is changed.
//
// Package namenode opens the folder at its start and closes it last; its backups
// and restores read and write the same layout.
package datadir
