package fuse

import (
	"context"
	"math"
)

// length is what the book has of the size that the kernel believes a file to have.
//
// The kernel takes in the attributes of an answer only if, since it asked, it has taken in
// no others and was not told to drop any: otherwise the answer is void. So of two answers
// under way it keeps the one that it processes first, though that may be the older.
// But a read through pages asks for the attributes and then ends where the kernel
// believes the file to end: too early, if the answer was void and the file has grown.
// So if an answer with a greater size may be void, a notification grows the file. A
// notification is never void, and voids the answers to all earlier questions.
//
// An answer is under way from its question until its thread asks again: only then is it
// certain that the kernel has processed it. And a question that arrives after a
// notification may have been asked before it, unless its thread did something in between.
type length struct {
	least  int64  // the kernel believes the size to be this at least
	said   int64  // the size that the kernel was told last
	alone  int64  // the size told to thread, while it is the only one with an answer under way
	says   uint64 // how often the kernel was told a size
	asks   uint64 // the number of the last question
	void   uint64 // answers to questions up to this one may be void
	asked  bool   // answers are under way
	thread uint32 // to this thread; if none are, one that has not asked since a notification; 0: unknown
	many   bool   // to several threads
	told   bool   // there was a notification
	// changer is the thread with an answer under way that is never void; or 0, or several.
	changer uint32
	opens   int // how many handles read through pages
}

const several = math.MaxUint32

// question is one for the attributes of a file.
type question struct {
	thread uint32
	number uint64
	says   uint64 // length.says before the mount looked
}

// asks notes that a thread asks for the attributes of a file. The mount looks next.
func (k *kernelCache) asks(ino uint64, thread uint32) question {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.get(ino)
	return question{thread, e.ask(thread), e.says}
}

func (l *length) ask(thread uint32) uint64 {
	same := thread != 0 && thread == l.thread
	if thread == l.changer {
		l.changer = 0
	}
	switch {
	case !l.asked && (same || !l.told):
		l.asked, l.thread, l.alone = true, thread, l.least
	case !l.asked: // the thread may have asked before the notification
		l.asked, l.thread, l.void = true, thread, l.asks+1
	case l.many || !same:
		l.many = true
	case l.asks > l.void && l.changer == 0: // the kernel has taken in what it was told
		l.least = l.alone
	}
	l.asks++
	return l.asks
}

// says notes the size that answers a question. False, with nothing noted, if the kernel was
// told a greater one since the mount looked: the mount has to look again.
func (k *kernelCache) says(ctx context.Context, n kernelInode, q *question, size int64) bool {
	k.mu.Lock()
	e := k.get(n.number())
	if size < e.said && e.says != q.says {
		q.says = e.says
		k.mu.Unlock()
		return false
	}
	grow := e.say(q.number, size) && e.opens > 0
	asks := e.asks
	k.mu.Unlock()
	if grow {
		k.grow(ctx, n, size, asks, q.thread)
	}
	return true
}

// doubts reports whether the answer to a question may be void.
func (l *length) doubts(question uint64) bool { return l.many || l.changer != 0 || question <= l.void }

// say notes a size; true if the kernel may still believe that it is less.
func (l *length) say(question uint64, size int64) bool {
	l.said = size
	l.says++
	if !l.doubts(question) {
		l.alone = size
	}
	l.least = min(l.least, size)
	return size > l.least && l.doubts(question)
}

// notes notes a size that a thread is told without having asked for it. False if the
// file is read through pages: then the thread must not be told, since the size may be older
// than what the kernel was told meanwhile.
func (k *kernelCache) notes(ino uint64, thread uint32, size int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.get(ino)
	if e.opens > 0 {
		return false
	}
	if e.asks == 0 {
		e.least = size
	}
	e.say(e.ask(thread), size)
	return true
}

// changes is called before the answer to a thread that changes more of a file than its
// contents: such an answer is never void, and voids others.
func (k *kernelCache) changes(ctx context.Context, ino uint64, thread uint32) {
	k.mu.Lock()
	e := k.of[ino]
	if e == nil || e.n == nil {
		k.mu.Unlock()
		return
	}
	under := e.asked
	e.ask(thread)
	if e.changer == 0 && thread != 0 {
		e.changer = thread
	} else {
		e.changer = several
	}
	k.overtaken(ctx, e.n, under, e.asks-1, 0)
}

// cut is called before an answer to a thread that cut a file as it opened it.
func (k *kernelCache) cut(ino uint64, thread uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.of[ino]; e != nil {
		e.say(e.ask(thread), 0)
	}
}

// voided is called after the kernel was told to drop attributes, with the number of
// the last question before.
func (k *kernelCache) voided(ctx context.Context, n kernelInode, asks uint64) {
	k.mu.Lock()
	e := k.of[n.number()]
	if e == nil {
		k.mu.Unlock()
		return
	}
	under := e.asked
	e.settle(asks, 0)
	k.overtaken(ctx, n, under, asks, 0)
}

// overtaken grows a file if an answer with its size may be void. The caller holds
// mu, which it unlocks.
func (k *kernelCache) overtaken(ctx context.Context, n kernelInode, under bool, asks uint64, thread uint32) {
	e := k.get(n.number())
	grow, size := under && e.said > e.least && e.opens > 0, e.said
	k.mu.Unlock()
	if grow {
		k.grow(ctx, n, size, asks, thread)
	}
}

// asked is the number of the last question about an inode.
func (k *kernelCache) asked(n kernelInode) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.of[n.number()]; e != nil {
		return e.asks
	}
	return 0
}

// grow makes the kernel believe that a file has at least that size. asks is the number
// of the last question before.
func (k *kernelCache) grow(ctx context.Context, n kernelInode, size int64, asks uint64, thread uint32) {
	if !n.grow(ctx, size) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.get(n.number())
	e.least = max(e.least, size)
	e.settle(asks, thread)
}

// settle notes that a notification has voided all answers to questions up to asks, and
// perhaps later ones. thread is a thread that asks nothing before settle returns.
func (l *length) settle(asks uint64, thread uint32) {
	l.void, l.told = l.asks, true
	if l.many = l.asks != asks; !l.many {
		l.asked, l.thread, l.alone = false, thread, l.least
	}
}

// shrinks notes that the kernel will believe that a file has only this size, since a read
// was told that the file ends there.
func (k *kernelCache) shrinks(ino uint64, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.of[ino]; e != nil && size < e.least {
		e.least = size
	}
}

// opened notes that a thread opens a file to read it through pages. Each call needs a
// call of closed.
func (k *kernelCache) opened(n kernelInode, thread uint32) {
	k.mu.Lock()
	e := k.get(n.number())
	e.n = n
	e.opens++
	// This is the first such handle, so nobody relies on the answers under way.
	void, asks := e.opens == 1 && e.many && e.said > e.least, e.asks
	k.mu.Unlock()
	if !void || n.drop(false) != 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e.settle(asks, thread)
}

// closed undoes opened.
func (k *kernelCache) closed(ino uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.of[ino]; e != nil && e.opens > 0 {
		e.opens--
	}
}
