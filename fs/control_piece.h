// The pieces that the control directory is made of (control.h): node.c gives each node of it its own.
#pragma once

enum control_piece {
	CONTROL_NONE,
	CONTROL_DIR,
	CONTROL_STATUS,
	CONTROL_STATUS_JSON,
	CONTROL_ERRORS,
	CONTROL_CONFIG,
	CONTROL_METRICS,
	CONTROL_STAGED,
	CONTROL_TRASH,
	CONTROL_CONFLICTS,
	CONTROL_POLICY,
	CONTROL_PREEMPTED,
	CONTROL_SHOULD_SAVE,
	CONTROL_PIECES,
	CONTROL_ANSWER = CONTROL_PIECES, // below should_save: nodes with this number and all above
	CONTROL_COPY,                    // below conflicts: those of SPACE_CONFLICTS
	CONTROL_ARRAYS,                  // STEP/.arrays: those of SPACE_ARRAYS
	CONTROL_ARRAY,                   // below that: those of SPACE_ARRAY
	CONTROL_VIEWS,                   // STEP/.views: those of SPACE_VIEWS
	CONTROL_VIEW,                    // below that: those of SPACE_VIEW
};
