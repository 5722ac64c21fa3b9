// Package marker is what a block store says of whose it is: the objects namespace
// and incarnation-00000001 and following.
//
// They are put if the name is free, and never changed. So of two that claim a store
// at a time one wins, and nobody becomes its owner but by Claim, which takes over
// only from the incarnation that is named.
//
// Package namenode claims its store at the start and asks again before it removes
// anything; a format and a restore claim it for a namespace that they make known.
package marker
