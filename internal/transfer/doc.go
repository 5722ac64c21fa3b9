// Package transfer moves bytes between this machine and a namespace, over
// package client: whole files and trees in and out (Put, Get), and a stream
// that is flushed as it comes (Pump).
//
// A file is there whole or not at all. Put writes a large file under a
// temporary name, ".NAME.leasefs-RANDOM" beside its place, and renames it when
// it is closed (see client.FS.WriteFrom: should the process die, the namenode
// deletes the temporary file); a small one is made by one call, many of them
// together, unless it has extended attributes to keep: these are set before the
// file is there. Get writes, syncs and renames a local file the same way. What fails
// removes its temporary file. Checksums are verified by package client as it reads.
//
// No symbolic link below a source or a target is followed, be it there from the
// beginning or put there by somebody else meanwhile: the directory that the user
// names is opened once (os.Root; lowlevel.Calls.Locate and client.WithoutLinks), and
// files in it are reached from there. One that is in the way of a directory is an
// error. Links that the user names are followed.
//
// Copies stop at the first error; what was copied until then stays.
package transfer
