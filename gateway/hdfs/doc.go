// Package hdfs serves a namespace to clients of HDFS by the protocols that they speak
// to a NameNode, over package client. Hadoop's names of calls become calls of a session of
// the user who asks (package users); what is about open files and blocks goes to
// package files, and the bytes of blocks to package data, which the same Server runs.
//
// A Server answers what a NameNode answers; methods.go has the list. It does not serve
// ClientDatanodeProtocol: the answer with the blocks of an open file says their length. What
// differs from HDFS is in docs/HADOOP.md.
package hdfs
