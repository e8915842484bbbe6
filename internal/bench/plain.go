package main

import (
	"context"
	"os"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// plainArg makes this program the plain server of a file.
const plainArg = "-plain"

// plainName is the one file of its mount.
const plainName = "file"

// plain is the least that a FUSE server of a file must do: pread, then reply, over the same library and with the same settings as weightfs.
type plain struct {
	fusefs.Inode
	file *os.File
	size int64
}

var (
	_ fusefs.NodeGetattrer = (*plain)(nil)
	_ fusefs.NodeOpener    = (*plain)(nil)
	_ fusefs.NodeReader    = (*plain)(nil)
)

func (p *plain) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = syscall.S_IFREG|0o444, uint64(p.size)
	return 0
}

func (p *plain) Open(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH, 0
}

func (p *plain) Read(_ context.Context, _ fusefs.FileHandle, dst []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := p.file.ReadAt(dst[:min(int64(len(dst)), p.size-off)], off)
	if err != nil {
		return nil, fusefs.ToErrno(err)
	}
	return fuse.ReadResultData(dst[:n]), 0
}

// servePlain mounts a file and serves it until it is unmounted.
func servePlain(path, dir string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	root := &fusefs.Inode{}
	s, err := fusefs.Mount(dir, root, &fusefs.Options{
		MountOptions: fuse.MountOptions{MaxWrite: 1 << 20, MaxBackground: 64, DisableSplice: true, DisableXAttrs: true, DisableReadDirPlus: true,
			ExplicitDataCacheControl: true, DirectMountStrict: true, Name: "plain"},
		OnAdd: func(ctx context.Context) {
			file := &plain{file: f, size: st.Size()}
			root.AddChild(plainName, root.NewPersistentInode(ctx, file, fusefs.StableAttr{Mode: syscall.S_IFREG}), false)
		},
	})
	if err != nil {
		return err
	}
	s.Wait()
	return nil
}

// plain mounts a file by the plain server, with the read-ahead that weightfs sets.
func (b *bench) plain(path string) (*mount, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &mount{bench: b, dir: b.fresh("plain")}
	if err := m.start(nil, self, plainArg, path, m.dir); err != nil {
		return nil, err
	}
	return m, m.setReadAhead(ownReadAhead)
}
