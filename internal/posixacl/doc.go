// Package posixacl has access control lists as POSIX.1e (acl(5)) and HDFS have them: what
// is one, how entries are put in and taken out, and the forms in which people and Linux
// write them. Users and groups are names; who may do what with a list is for others.
//
// It is a leaf: values without state, safe for concurrent use.
package posixacl
