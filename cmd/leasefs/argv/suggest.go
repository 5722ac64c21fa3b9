package argv

import "fmt"

// Suggest names the candidate that a mistyped word probably meant. Few mistype the
// first letter, and a word with another one may mean the opposite: rmdir, mkdir.
func Suggest(word string, candidates []string) string {
	best, at := "", 3
	for _, c := range candidates {
		if d := distance(word, c); d < at && d < len(c) && word[:1] == c[:1] {
			best, at = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; is %q meant?", best)
}

// distance is the Levenshtein distance of two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
