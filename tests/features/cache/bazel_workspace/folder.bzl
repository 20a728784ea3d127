"""A rule whose output is a directory, so that a result has a Tree."""

def _folder(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        inputs = [ctx.file.src],
        outputs = [out],
        command = "mkdir $2/deep; cp $1 $2/plain; cp $1 $2/deep/program; chmod 755 $2/deep/program",
        arguments = [ctx.file.src.path, out.path],
    )
    return [DefaultInfo(files = depset([out]))]

folder = rule(
    implementation = _folder,
    attrs = {"src": attr.label(allow_single_file = True)},
)
