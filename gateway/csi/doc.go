// Package csi is a driver by the Container Storage Interface: Kubernetes gives pods
// volumes of a namespace by it (docs/KUBERNETES.md, ADR 0041).
//
//   - A volume is a directory below a base that is the driver's alone. Its name is the
//     volume's id, and its capacity is an extended attribute of it. There is no other state
//     of the [controller].
//   - A [node] has one mount for each volume, in a process of its own, at the staging
//     path. What a pod gets is a bind of that. The processes live on when the driver
//     ends.
//   - What is staged and published is in a [ledger], one file a volume, which is written
//     before the mount is made. [node.restore] makes true what a file says; staging,
//     publishing, a start of the driver and its look every few seconds all go through it. So
//     a mount whose process was killed is made good by what made it.
//
// The socket is as good as root: whoever opens it names the paths that are mounted. It has
// mode 0600, and other transports than Unix sockets are refused.
package csi
