// Package codec is how records and images of a namespace lie in bytes: a [Coder]
// has the fields, an [ImageWriter] and an [ImageReader] the frame of an image, which
// are chunks with checksums. It knows nothing of what is written.
//
// A reader takes only what a writer writes: there is one form for each value. It
// takes memory only for what it has really read, so that no damaged length or
// count makes it take more. The first mistake is kept; from there on all that is
// read is zero, so a layout checks once, at its end.
//
// The byte formats are in docs/design/records-and-image.md.
package codec
