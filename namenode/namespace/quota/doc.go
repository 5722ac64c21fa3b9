// Package quota counts the names and bytes that are in directories with a quota and below, and
// says whether there is room for more.
//
// A directory with a quota has an [Entry] in the [Table]; no other directory is counted, and
// a tree without quotas pays one comparison for a change. What changes goes up from its
// place and adds to each quota on the way, so nested quotas all count. Moving or deleting a
// directory counts what is below it, down to the next quotas, if that leaves or enters a
// quota. A [Growth] is what a change is going to add.
package quota
