# SPDX-License-Identifier: Apache-2.0
"""Pictures, sound and film."""

from program import outcome, program, write


@program("ffmpeg")
def ffmpeg(folder, start):
    """Two streams, encoded by several threads, and decoded again."""
    common = ["ffmpeg", "-nostdin", "-v", "error", "-threads", "4"]
    made = outcome(start([*common, "-f", "lavfi", "-i", "testsrc2=duration=2:size=320x240:rate=15", "-f", "lavfi",
                          "-i", "sine=frequency=440:duration=2", "-c:v", "libx264", "-preset", "fast", "-threads", "4",
                          "-c:a", "aac", "-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact",
                          "film.mkv"]),
                   folder, ["film.mkv"])
    return {"made": made, "read": outcome(start([*common, "-i", "film.mkv", "-f", "framemd5", "-"]))}


@program("imagemagick")
def imagemagick(folder, start):
    return outcome(start(["convert", "-seed", "1", "-size", "300x200", "plasma:red-blue", "(", "+clone", "-blur", "0x5",
                          "-rotate", "30", ")", "-append", "-resize", "150%", "-colors", "64", "-fill", "white",
                          "-draw", "circle 80,80 80,120", "out.ppm"]), folder, ["out.ppm"])


@program("ghostscript")
def ghostscript(folder, start):
    """Fonts, curves and dictionaries, drawn to a picture and written as PDF."""
    write(folder, "page.ps", """%!PS
/Times-Roman findfont 12 scalefont setfont
1 1 3 { pop
  0 1 60 { /i exch def 50 i 12 mul 40 add moveto (heap ) show i 20 string cvs show
           200 i 12 mul moveto 300 i 9 mul 400 i 14 mul 500 i 12 mul curveto stroke } for
  /d 5000 dict def 0 1 4999 { dup 20 string cvs d 3 1 roll exch put } for
  showpage
} for
""")
    common = ["gs", "-q", "-dNOPAUSE", "-dBATCH", "-dSAFER"]
    drawn = outcome(start([*common, "-sDEVICE=ppmraw", "-r72", "-dNumRenderingThreads=2", "-o", "page.ppm", "page.ps"]),
                    folder, ["page.ppm"])
    return {"drawn": drawn, "written": outcome(start([*common, "-sDEVICE=pdfwrite", "-o", "page.pdf", "page.ps"]))}


@program("sox")
def sox(folder, start):
    made = outcome(start(["sox", "-R", "-n", "-r", "44100", "tone.wav", "synth", "5", "sine", "300-3300", "tremolo",
                          "6"]), folder, ["tone.wav"])
    changed = outcome(start(["sox", "-R", "tone.wav", "out.flac", "reverb", "rate", "48000", "tempo", "1.3",
                             "reverse"]), folder, ["out.flac"])
    return {"made": made, "changed": changed}
