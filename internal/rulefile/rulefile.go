// Package rulefile reads files of rules: a line for each, in words. Empty lines and those that begin
// with # mean nothing.
package rulefile

import (
	"bufio"
	"bytes"
	"strings"
)

// Each calls rule with the number and the words of each line that is a rule, until it returns an
// error. An error of Each's own says that a line is too long.
func Each(content []byte, rule func(line int, words []string) error) error {
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := rule(n, words); err != nil {
			return err
		}
	}
	return lines.Err()
}
