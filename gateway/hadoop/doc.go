// Package hadoop is what the gateways for Hadoop's clients have in common, whatever the
// protocol: the Java names of errors, the rules of HDFS where they differ from those of
// the library, and what HDFS knows of a file and leasefs does not.
package hadoop
