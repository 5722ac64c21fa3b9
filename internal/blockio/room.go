package blockio

// Room is what a block under way has of something that is shared, and gives back once; nil is
// nothing.
type Room func()

// Give gives it back.
func (r Room) Give() {
	if r != nil {
		r()
	}
}
