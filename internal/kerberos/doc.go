// Package kerberos is the two sides of a proof of identity by Kerberos: a client shows a
// ticket for the namenode, fresh each time (an AP-REQ in SPNEGO, as in HTTP's "Negotiate"),
// and the namenode, which asks no other server, finds out by its keytab whose it is. What
// follows the proof on a connection is protected by TLS, not by the ticket's key.
package kerberos
