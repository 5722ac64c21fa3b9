package calls

// PageBytes is about how many bytes of paths, names and attributes a page of an answer has: it ends
// with the entry that reaches them. Paths have up to 32 KiB each, and an answer of more than 16 MiB
// is refused (internal/callstream): nobody could read past a page that is bounded by entries only.
const PageBytes = 2 << 20
