package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

const rootHelp = `weightfs mounts a release of model weights as a directory. The release stands there byte for byte, fetched when it is read. Beside it
stand views: model directories and files that exist nowhere, whose bytes are computed when they are read.`

const rootExamples = `  weightfs mount hf://Qwen/Qwen3-30B-A3B-FP8 ~/qwen          everything, in the foreground
  weightfs mount --daemon --view bf16 ./model-fp8 /mnt/m     one view at the root, in the background
  weightfs ls hf://Qwen/Qwen3-30B-A3B-FP8 bf16               the same tree with no mount
  weightfs cp hf://Qwen/Qwen3-30B-A3B-FP8 bf16 ./qwen-bf16   convert while downloading: parallel, resumes
  weightfs explain ./model experts/bf16/blocks/L010/E003.bin how a file is made, and what reading it sends
  weightfs inspect https://host/model/                       what the headers of a release say
  weightfs demo                                              all of it, on this machine, with no network`

const rootSources = `SOURCE is hf://[org/]name[@revision], https://host/dir/ (or one .safetensors file), a directory or file:///dir.
PATH is as in the mount: release/config.json, bf16/config.json, experts/native/manifest.json.

Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 not permitted, 5 refused as inexact, 6 corrupt.`

func newRootCommand(u *ui) *cobra.Command {
	root := &cobra.Command{
		Use:           "weightfs",
		Short:         "Mount model weights as files, in the form a program wants",
		Long:          rootHelp,
		Example:       rootExamples,
		Args:          unknownCommand,
		Version:       versionLine(),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(u.in)
	root.SetOut(u.out)
	root.SetErr(u.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{err.Error(), fmt.Sprintf("see %s --help", c.CommandPath())}
	})
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.PersistentFlags().BoolVar(&u.json, "json", false, "what a command prints, and errors, as JSON")
	root.AddCommand(
		newMountCommand(u), newUmountCommand(u), newStatusCommand(u),
		newLsCommand(u), newCatCommand(u), newCpCommand(u),
		newInspectCommand(u), newExplainCommand(u),
		newServeCommand(u), newWarmCommand(u), newVerifyCommand(u), newSealCommand(u), newCacheCommand(u), newDemoCommand(u), newVersionCommand(u),
	)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = knownTopic
		}
	}
	return root
}

// helpTemplate shows examples before anything else.
const helpTemplate = `{{with (or .Long .Short)}}{{.}}

{{end}}{{if .HasExample}}{{.Example}}

{{end}}{{.UsageString}}{{if not .HasParent}}
` + rootSources + `
{{end}}`

const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if or .HasAvailableLocalFlags .HasAvailableInheritedFlags}}

Flags:
{{.Flags.FlagUsages | trimTrailingWhitespaces}}{{end}}
`

func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see weightfs help"
	if c.HasParent() {
		hint = fmt.Sprintf("see %s --help", c.CommandPath())
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %s %s?", c.CommandPath(), near[0])
	}
	return usageError{fmt.Sprintf("unknown command %q", args[0]), hint}
}

// knownTopic checks that help is asked for a command.
func knownTopic(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	if err != nil {
		return err
	}
	return unknownCommand(topic, rest)
}

// args checks the number of arguments; max < 0 is any number.
func args(min, max int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < min || max >= 0 && len(args) > max {
			return usageError{fmt.Sprintf("wrong number of arguments (%d)", len(args)), "usage: " + c.UseLine()}
		}
		return nil
	}
}
